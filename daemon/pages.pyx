"""Pages of libraries go back to the system once a start is over: it reads most of them, and the work few.

Loading a library reads its tables from end to end, and with large pages in the page cache each touch maps 64 KiB: of
Arrow and what belongs to it that is 50 to 80 MiB, of which landing records needs half. Such a page is the file's, so it
costs nothing to drop and a fault to have again. Only segments that nobody may write are given back: what the linker has
changed lies in others. Objects whose text it has to change are left alone.
"""

cdef extern from *:
    """
    #include <link.h>
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
            return 0; /* the kernel's own, or not as its file is */
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
    """
    void fw_release_libraries() noexcept nogil


def release_library_pages():
    """Let go of the resident pages of all libraries; what is needed comes back by itself."""
    with nogil:
        fw_release_libraries()
