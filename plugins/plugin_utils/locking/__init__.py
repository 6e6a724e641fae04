# Copyright (c) the hpcml.torchstack contributors
# SPDX-License-Identifier: Apache-2.0
"""Make the locks of release files; bin/lock is the program. On the control node."""
