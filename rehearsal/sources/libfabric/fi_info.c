/* Copyright (c) the hpcml.torchstack contributors
 * SPDX-License-Identifier: Apache-2.0
 * What fi_info(1) says of a stand-in for libfabric.
 */
#include <rdma/fabric.h>
#include <stdio.h>
#include <string.h>

int main(int count, char **words)
{
    struct fi_info *info;
    if (count > 1 && strcmp(words[1], "--version") == 0) {
        printf("fi_info: %s\nlibfabric: %s\nlibfabric api: %u.%u\n", VERSION, VERSION, FI_MAJOR(fi_version()),
               FI_MINOR(fi_version()));
        return 0;
    }
    if (fi_getinfo(fi_version(), 0, 0, 0, 0, &info) != 0)
        return 1;
    printf("provider: %s\n    fabric: %s\n", info->fabric_attr->prov_name, info->fabric_attr->name);
    fi_freeinfo(info);
    return 0;
}
