"""Release of library and heap pages to the system, and retention of heap pages.

Library pages are released once a start is over: the start reads most of them, the work few. Loading a library reads
its tables from end to end, and with large pages in the page cache each touch maps 64 KiB: for Arrow and its
dependencies that is 50 to 80 MiB, of which landing records needs half. Such a page belongs to the file, so dropping it
is free and reading it again costs a fault. Only read-only segments are released: the linker's changes lie in others.
Objects with text relocations are left alone.

Heap pages are kept, within bounds: encoding allocates and frees the same megabytes for each column, and with fresh
pages each time that costs a tenth more. What is free between blocks in use stays, too, and after many large values
that may be tens of megabytes: it is released when memory is short.
"""

cdef extern from *:
    """
    #include <link.h>
    #include <malloc.h>
    #include <string.h>
    #include <sys/mman.h>
    #include <unistd.h>

    static int fw_changes_text(const struct dl_phdr_info *info)
    {
        for (int i = 0; i < info->dlpi_phnum; i++) {
            if (info->dlpi_phdr[i].p_type != PT_DYNAMIC)
                continue;
            const ElfW(Dyn) *entry = (const ElfW(Dyn) *)(info->dlpi_addr + info->dlpi_phdr[i].p_vaddr);
            for (; entry->d_tag != DT_NULL; entry++)
                if (entry->d_tag == DT_TEXTREL || (entry->d_tag == DT_FLAGS && (entry->d_un.d_val & DF_TEXTREL)))
                    return 1;
        }
        return 0;
    }

    static int fw_release_object(struct dl_phdr_info *info, size_t size, void *unused)
    {
        (void)size, (void)unused;
        uintptr_t page = (uintptr_t)sysconf(_SC_PAGESIZE);
        if (strncmp(info->dlpi_name, "linux-", 6) == 0 || fw_changes_text(info))
            return 0; /* the kernel's own, or different from its file */
        for (int i = 0; i < info->dlpi_phnum; i++) {
            const ElfW(Phdr) *segment = &info->dlpi_phdr[i];
            if (segment->p_type != PT_LOAD || (segment->p_flags & PF_W))
                continue;
            uintptr_t from = (info->dlpi_addr + segment->p_vaddr + page - 1) & ~(page - 1);
            uintptr_t to = (info->dlpi_addr + segment->p_vaddr + segment->p_filesz) & ~(page - 1);
            if (to > from)
                madvise((void *)from, to - from, MADV_DONTNEED); /* a refusal (locked memory) changes nothing */
        }
        return 0;
    }

    static void fw_release_libraries(void) { dl_iterate_phdr(fw_release_object, NULL); }

    static void fw_release_heaps(void)
    {
    #ifdef __GLIBC__
        malloc_trim(0);
    #endif
    }

    static void fw_keep_heap(int block, int spare)
    {
    #ifdef __GLIBC__ /* others have no such settings */
        mallopt(M_MMAP_THRESHOLD, block);
        mallopt(M_TRIM_THRESHOLD, spare);
    #else
        (void)block, (void)spare;
    #endif
    }
    """
    void fw_release_libraries() noexcept nogil
    void fw_release_heaps() noexcept nogil
    void fw_keep_heap(int block, int spare) noexcept nogil

# Pages of a Parquet column are of 1 MiB until they are compressed, and the buffer that they grow in is twice as large.
cdef enum:
    KEPT_BLOCK = 4 << 20
    MOST_SPARE = 16 << 20
    SPARE_SHARE = 16


def release_library_pages():
    """Release the resident pages of all libraries; a page that is needed again is read again on access."""
    with nogil:
        fw_release_libraries()


def release_heap_pages():
    """Release the free pages of all heaps. This takes a millisecond or two, and as much again when they are needed."""
    with nogil:
        fw_release_heaps()


def keep_heap_pages(long long memory):
    """Keep blocks of up to 4 MiB in a heap, and a 16th of ``memory`` bytes at the end of each, at most 16 MiB.

    By default the system's allocator adapts these limits, and releases pages that the next column needs again. Each
    thread may have a heap of its own.
    """
    fw_keep_heap(KEPT_BLOCK, <int>min(<long long>MOST_SPARE, memory // SPARE_SHARE))
