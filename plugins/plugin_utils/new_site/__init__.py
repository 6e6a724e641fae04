# Copyright (c) the hpcml.torchstack contributors
# SPDX-License-Identifier: Apache-2.0
"""Ask about a site, and write a repository with its data; bin/new-site is the program. On the control node."""
