/* Copyright (c) the hpcml.torchstack contributors
 * SPDX-License-Identifier: Apache-2.0
 * How NCCL 2.21 looks for a network plugin, and what it says in its log.
 */
#include "standin.h"

#include <cstdarg>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <dlfcn.h>
#include <strings.h>

#include "nccl_net.h"

static const int newest = 8, oldest = 5;

static void log(int, unsigned long, const char *, int, const char *format, ...) {
  char text[512];
  va_list arguments;
  va_start(arguments, format);
  vsnprintf(text, sizeof text, format, arguments);
  va_end(arguments);
  inform("%s", text);
}

static void *openNamed(const char *name) {
  void *library = dlopen(name, RTLD_NOW | RTLD_LOCAL);
  if (library == nullptr) {
    const char *problem = dlerror();
    if (strstr(problem, "No such file") != nullptr) inform("NET/Plugin: No plugin found (%s)", name);
    else inform("NET/Plugin: Plugin load returned 2 : %s when loading %s", problem, name);
  }
  return library;
}

/* A value is taken as it is, and as part of a name; the default name is not tried then. */
static void *openPlugin() {
  const char *given = getenv("NCCL_NET_PLUGIN");
  if (given == nullptr || *given == '\0') return openNamed("libnccl-net.so");
  inform("NET/Plugin: Plugin name set by env to %s", given);
  void *library = openNamed(given);
  if (library != nullptr) return library;
  char name[512];
  snprintf(name, sizeof name, "libnccl-net-%s.so", given);
  return openNamed(name);
}

static ncclNet_t *pluginNetwork() {
  void *library = openPlugin();
  if (library == nullptr) {
    inform("NET/Plugin: Using internal network plugin.");
    return nullptr;
  }
  for (int version = newest; version >= oldest; version--) {
    char symbol[32];
    snprintf(symbol, sizeof symbol, "ncclNetPlugin_v%d", version);
    ncclNet_t *network = static_cast<ncclNet_t *>(dlsym(library, symbol));
    if (network != nullptr) {
      inform("NET/Plugin: Loaded net plugin %s (v%d)", network->name, version);
      return network;
    }
    inform("NET/Plugin: Failed to find %s symbol.", symbol);
  }
  return nullptr;
}

static bool is(const char *asked, const char *name) {
  return asked == nullptr || *asked == '\0' || strcasecmp(asked, name) == 0;
}

ncclResult_t chooseNetwork() {
  const char *asked = getenv("NCCL_NET");
  ncclNet_t *network = pluginNetwork();
  int devices = 0;
  if (network != nullptr && is(asked, network->name) && network->init(log) == 0 && network->devices(&devices) == 0 &&
      devices > 0) {
    inform("Using network %s", network->name);
    return ncclSuccess;
  }
  if (is(asked, "Socket")) {
    inform("NET/Socket : Using [0]hsn0:10.0.0.1<0>");
    inform("Using network Socket");
    return ncclSuccess;
  }
  inform("Error: network %s not found.", asked);
  return ncclInvalidUsage;
}
