-- Copyright (c) the hpcml.torchstack contributors
-- SPDX-License-Identifier: Apache-2.0
-- What the site's other modules build upon.
whatis("Name: ncarenv")
try_load("craype")
