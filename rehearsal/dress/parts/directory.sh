#!/bin/sh
# What is there, and empty.
mkdir -p "$PLACE"
