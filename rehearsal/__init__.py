# Copyright (c) the hpcml.torchstack contributors
# SPDX-License-Identifier: Apache-2.0
"""The rehearsal cluster: containers dressed as a site, and a rollout on them. See docs/tutorials/rehearse-a-site.md."""
