/* GNU General Public License v3.0+ (see COPYING or https://www.gnu.org/licenses/gpl-3.0.txt)
 *
 * A stand-in for NVIDIA's library NVML: a simulation that answers from /var/lib/gpu-stand-in.
 * Built once per version of the driver, with -DVERSION='"580.95.05"'. It keeps to functions of libc
 * that are in every one, so that it runs on nodes older than the machine that built it.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define STATE "/var/lib/gpu-stand-in/now/"
#define LOADED "/var/lib/gpu-stand-in/root/sys/module/nvidia/version"

enum {
    SUCCESS = 0, UNINITIALIZED = 1, INVALID_ARGUMENT = 2, NOT_SUPPORTED = 3, NOT_FOUND = 6,
    INSUFFICIENT_SIZE = 7, DRIVER_NOT_LOADED = 9, GPU_IS_LOST = 15, LIB_RM_VERSION_MISMATCH = 18,
    UNKNOWN = 999
};

typedef struct {
    char busIdLegacy[16];
    unsigned int domain, bus, device, pciDeviceId, pciSubSystemId;
    char busId[32];
} pci_info;

static int initialized;

/* Read the first line of a file, without its newline. Returns 0 if there is none. */
static int line_of(const char *path, char *line, int size)
{
    FILE *file = fopen(path, "r");
    char *read;
    if (!file) return 0;
    read = fgets(line, size, file);
    fclose(file);
    if (!read) return 0;
    line[strcspn(line, "\n")] = 0;
    return 1;
}

/* Read the words of line `index` of nvml.txt that starts with `kind`. Returns their number. */
static int words_of(const char *kind, long index, char words[4][128])
{
    char line[256], *word;
    int count = 0;
    FILE *file = fopen(STATE "nvml.txt", "r");
    if (!file) return 0;
    while (!count && fgets(line, sizeof line, file)) {
        word = strtok(line, " \n");
        if (!word || strcmp(word, kind) || index--) continue;
        for (; word && count < 4; word = strtok(NULL, " \n")) {
            strncpy(words[count], word, 127);
            words[count++][127] = 0;
        }
    }
    fclose(file);
    return count;
}

static int gpus(void)
{
    char words[4][128];
    int count = 0;
    while (words_of("gpu", count, words)) count++;
    return count;
}

/* Word `word` of a GPU: 1 PCI address, 2 UUID, 3 links. A handle is the index plus one. */
static int of_gpu(void *handle, int word, char *value, int size)
{
    char words[4][128];
    if (words_of("gpu", (long)handle - 1, words) <= word) return 0;
    snprintf(value, size, "%s", words[word]);
    return 1;
}

static int text(const char *value, char *into, unsigned int size)
{
    if (strlen(value) + 1 > size) return INSUFFICIENT_SIZE;
    strcpy(into, value);
    return SUCCESS;
}

int nvmlInitWithFlags(unsigned int flags)
{
    char loaded[64], words[4][128];
    (void)flags;
    if (!line_of(LOADED, loaded, sizeof loaded)) return DRIVER_NOT_LOADED;
    if (strcmp(loaded, VERSION)) return LIB_RM_VERSION_MISMATCH;
    if (words_of("init", 0, words) > 1 && atoi(words[1])) return atoi(words[1]);
    initialized = 1;
    return SUCCESS;
}

int nvmlInit_v2(void) { return nvmlInitWithFlags(0); }
int nvmlInit(void) { return nvmlInitWithFlags(0); }
int nvmlShutdown(void) { initialized = 0; return SUCCESS; }

const char *nvmlErrorString(int code)
{
    switch (code) {
    case SUCCESS: return "The operation was successful";
    case UNINITIALIZED: return "NVML was not first initialized with nvmlInit()";
    case INVALID_ARGUMENT: return "A supplied argument is invalid";
    case NOT_SUPPORTED: return "The requested operation is not available on target device";
    case NOT_FOUND: return "A query to find an object was unsuccessful";
    case INSUFFICIENT_SIZE: return "An input argument is not large enough";
    case DRIVER_NOT_LOADED: return "NVIDIA driver is not loaded";
    case GPU_IS_LOST: return "The GPU has fallen off the bus or has otherwise become inaccessible";
    case LIB_RM_VERSION_MISMATCH: return "RM has detected an NVML/RM version mismatch.";
    default: return "An internal driver error occurred";
    }
}

int nvmlSystemGetNVMLVersion(char *version, unsigned int size)
{
    return text(NVML_VERSION, version, size);
}

int nvmlSystemGetDriverVersion(char *version, unsigned int size)
{
    return initialized ? text(VERSION, version, size) : UNINITIALIZED;
}

int nvmlDeviceGetCount_v2(unsigned int *count)
{
    if (!initialized) return UNINITIALIZED;
    *count = gpus();
    return SUCCESS;
}

int nvmlDeviceGetHandleByIndex_v2(unsigned int index, void **handle)
{
    if (!initialized) return UNINITIALIZED;
    if ((int)index >= gpus()) return INVALID_ARGUMENT;
    *handle = (void *)(long)(index + 1);
    return SUCCESS;
}

int nvmlDeviceGetIndex(void *handle, unsigned int *index)
{
    *index = (unsigned int)(long)handle - 1;
    return SUCCESS;
}

int nvmlDeviceGetPciInfo_v3(void *handle, pci_info *info)
{
    char pci[64];
    if (!of_gpu(handle, 1, pci, sizeof pci)) return NOT_FOUND;
    memset(info, 0, sizeof *info);
    snprintf(info->busIdLegacy, sizeof info->busIdLegacy, "%.15s", pci + 4);
    snprintf(info->busId, sizeof info->busId, "%.31s", pci);
    info->pciDeviceId = 0x318210de;
    return SUCCESS;
}

int nvmlDeviceGetName(void *handle, char *name, unsigned int size)
{
    (void)handle;
    return text("NVIDIA B300 SXM6 AC (simulated)", name, size);
}

int nvmlDeviceGetUUID(void *handle, char *uuid, unsigned int size)
{
    char value[96];
    if (!of_gpu(handle, 2, value, sizeof value)) return NOT_FOUND;
    return text(value, uuid, size);
}

/* The state has the links of each GPU as a row of 0 and 1. */
int nvmlDeviceGetNvLinkState(void *handle, unsigned int link, unsigned int *active)
{
    char links[96];
    if (!initialized) return UNINITIALIZED;
    if (!of_gpu(handle, 3, links, sizeof links)) return NOT_SUPPORTED;
    if (link >= strlen(links)) return INVALID_ARGUMENT;
    *active = links[link] == '1';
    return SUCCESS;
}
