/* Copyright (c) the hpcml.torchstack contributors
 * SPDX-License-Identifier: Apache-2.0
 * What Cray's MPI does beyond MPICH when it starts: asked for GPUs, it wants its transport layer for them in the process.
 */
#define _GNU_SOURCE
#include <link.h>
#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static int is_transport_layer(struct dl_phdr_info *object, size_t size, void *found)
{
    (void)size;
    if (object->dlpi_name != NULL && strstr(object->dlpi_name, "libmpi_gtl_cuda") != NULL)
        *(int *)found = 1;
    return 0;
}

static void want_transport_layer(void)
{
    const char *asked = getenv("MPICH_GPU_SUPPORT_ENABLED");
    int found = 0;
    if (asked == NULL || strcmp(asked, "1") != 0)
        return;
    dl_iterate_phdr(is_transport_layer, &found);
    if (!found) {
        fprintf(stderr, "MPIDI_CRAY_init: GPU_SUPPORT_ENABLED is requested, but GTL library is not linked\n");
        exit(1);
    }
}

int MPI_Init(int *count, char ***words)
{
    want_transport_layer();
    return PMPI_Init(count, words);
}

int MPI_Init_thread(int *count, char ***words, int required, int *provided)
{
    want_transport_layer();
    return PMPI_Init_thread(count, words, required, provided);
}
