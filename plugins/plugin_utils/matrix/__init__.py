# Copyright (c) the hpcml.torchstack contributors
# SPDX-License-Identifier: Apache-2.0
"""Roll out, plan or mirror several releases that differ by axes, such as Python and PyTorch: bin/matrix."""
