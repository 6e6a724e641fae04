# Copyright (c) the hpcml.torchstack contributors
# SPDX-License-Identifier: Apache-2.0
"""Do an operator's day by one command, over the playbooks and programs; bin/torchstack is the program."""
