/* Memory by size class, with one atomic counter of what is in use: the byte budget.
 *
 * Blocks may come back on any thread, without the interpreter lock, also while the interpreter exits (Arrow release
 * callbacks): so this is plain C, calls nothing upwards, and the pool lives until its last block is back.
 * A fresh page costs twenty times a hot one, so blocks are kept (last in, first out, strictly by class) and given back
 * to the system only by fw_pool_trim, or when what is kept would lift the total above the limit.
 */
#ifndef FASTWIRE_POOL_H
#define FASTWIRE_POOL_H

#include <pthread.h>
#include <stdatomic.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <sys/mman.h>

#if defined(__SANITIZE_ADDRESS__)
#include <sanitizer/asan_interface.h>
#define FW_POISON(p, n) ASAN_POISON_MEMORY_REGION(p, n)
#define FW_UNPOISON(p, n) ASAN_UNPOISON_MEMORY_REGION(p, n)
#else
#define FW_POISON(p, n) ((void)0)
#define FW_UNPOISON(p, n) ((void)0)
#endif

#define FW_MIN_CLASS 14           /* 16 KiB: the first growth step of a small column */
#define FW_MAX_CLASS 34           /* 16 GiB: beyond any legal frame; larger asks are refused */
#define FW_HUGE ((size_t)1 << 21) /* blocks of this size and above are aligned for huge pages */

typedef struct fw_free_block {
    struct fw_free_block *next;
} fw_free_block;

typedef struct fw_pool {
    pthread_mutex_t lock;
    atomic_llong used;   /* bytes in blocks that are out, and what is charged */
    atomic_llong charged; /* bytes that others hold for records, outside of any block */
    atomic_llong receiving; /* bytes in receive buffers, a part of `used` */
    atomic_llong peak;
    atomic_llong limit;  /* the budget; asked by drivers, never enforced here */
    atomic_long refs;    /* the owner and every block that is out */
    long long kept;      /* bytes in the free lists, under the lock */
    fw_free_block *free[FW_MAX_CLASS + 1];
} fw_pool;

static inline int fw_class(size_t size)
{
    int k = FW_MIN_CLASS;
    while (k <= FW_MAX_CLASS && ((size_t)1 << k) < size)
        k++;
    return k;
}

static inline fw_pool *fw_pool_new(long long limit)
{
    fw_pool *pool = (fw_pool *)calloc(1, sizeof(fw_pool));
    if (!pool)
        return NULL;
    pthread_mutex_init(&pool->lock, NULL);
    atomic_init(&pool->limit, limit);
    atomic_init(&pool->refs, 1);
    return pool;
}

static inline void *fw_map(size_t size)
{
    if (size < FW_HUGE) {
        void *p = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
        return p == MAP_FAILED ? NULL : p;
    }
    char *raw = (char *)mmap(NULL, size + FW_HUGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (raw == MAP_FAILED)
        return NULL;
    char *at = (char *)(((uintptr_t)raw + FW_HUGE - 1) & ~(uintptr_t)(FW_HUGE - 1));
    if (at > raw)
        munmap(raw, (size_t)(at - raw));
    munmap(at + size, (size_t)(raw + FW_HUGE - at));
    madvise(at, size, MADV_HUGEPAGE); /* a refusal costs speed only */
    return at;
}

static inline void fw_unmap_chain(fw_free_block *block, size_t size)
{
    while (block) {
        FW_UNPOISON(block, size);
        fw_free_block *next = block->next;
        munmap(block, size);
        block = next;
    }
}

/* Give kept blocks back to the system, largest first, until at most `keep` bytes stay. */
static inline void fw_pool_trim(fw_pool *pool, long long keep)
{
    for (int k = FW_MAX_CLASS; k >= FW_MIN_CLASS; k--) {
        for (;;) {
            pthread_mutex_lock(&pool->lock);
            fw_free_block *block = pool->kept > keep ? pool->free[k] : NULL;
            if (block) {
                FW_UNPOISON(block, sizeof(fw_free_block));
                pool->free[k] = block->next;
                block->next = NULL;
                pool->kept -= (long long)1 << k;
            }
            pthread_mutex_unlock(&pool->lock);
            if (!block)
                break;
            fw_unmap_chain(block, (size_t)1 << k);
        }
    }
}

static inline void fw_pool_unref(fw_pool *pool)
{
    if (atomic_fetch_sub(&pool->refs, 1) == 1) {
        fw_pool_trim(pool, 0);
        pthread_mutex_destroy(&pool->lock);
        free(pool);
    }
}

/* `size` bytes more are in use, or fewer if it is negative. */
static inline void fw_count(fw_pool *pool, long long size)
{
    long long used = atomic_fetch_add(&pool->used, size) + size;
    long long peak = atomic_load(&pool->peak);
    while (used > peak && !atomic_compare_exchange_weak(&pool->peak, &peak, used)) {
    }
}

/* A block of at least `size` bytes, or NULL; *klass gets its class. Its content is undefined. */
static inline void *fw_take(fw_pool *pool, size_t size, int *klass)
{
    int k = fw_class(size);
    if (k > FW_MAX_CLASS)
        return NULL;
    size_t whole = (size_t)1 << k;
    pthread_mutex_lock(&pool->lock);
    fw_free_block *block = pool->free[k];
    if (block) {
        FW_UNPOISON(block, whole);
        pool->free[k] = block->next;
        pool->kept -= (long long)whole;
    }
    long long kept = pool->kept;
    pthread_mutex_unlock(&pool->lock);
    if (!block) {
        long long room = atomic_load(&pool->limit) - atomic_load(&pool->used) - (long long)whole;
        if (kept > 0 && kept > room) /* other classes hold what this one needs */
            fw_pool_trim(pool, room > 0 ? room : 0);
        block = (fw_free_block *)fw_map(whole);
        if (!block)
            return NULL;
    }
    atomic_fetch_add(&pool->refs, 1);
    fw_count(pool, (long long)whole);
    *klass = k;
    return block;
}

static inline void fw_give(fw_pool *pool, void *memory, int klass)
{
    size_t whole = (size_t)1 << klass;
    long long used = atomic_fetch_sub(&pool->used, (long long)whole) - (long long)whole;
    fw_free_block *block = (fw_free_block *)memory;
    pthread_mutex_lock(&pool->lock);
    int keep = used + pool->kept + (long long)whole <= atomic_load(&pool->limit);
    if (keep) {
        block->next = pool->free[klass];
        pool->free[klass] = block;
        pool->kept += (long long)whole;
        FW_POISON(block, whole);
    }
    pthread_mutex_unlock(&pool->lock);
    if (!keep)
        munmap(memory, whole);
    fw_pool_unref(pool);
}

/* The memory of one chunk: blocks that live as long as anything refers to any of them. */
#define FW_BLOCKS 16

typedef struct fw_memory {
    atomic_long refs;
    fw_pool *pool;
    int count;
    void *block[FW_BLOCKS];
    int klass[FW_BLOCKS];
} fw_memory;

static inline fw_memory *fw_memory_new(fw_pool *pool)
{
    fw_memory *m = (fw_memory *)calloc(1, sizeof(fw_memory));
    if (m) {
        m->pool = pool;
        atomic_init(&m->refs, 1);
        atomic_fetch_add(&pool->refs, 1);
    }
    return m;
}

static inline void fw_memory_ref(fw_memory *m)
{
    atomic_fetch_add(&m->refs, 1);
}

static inline void fw_memory_unref(fw_memory *m)
{
    if (atomic_fetch_sub(&m->refs, 1) != 1)
        return;
    fw_pool *pool = m->pool;
    for (int i = 0; i < m->count; i++)
        if (m->block[i])
            fw_give(pool, m->block[i], m->klass[i]);
    free(m);
    fw_pool_unref(pool);
}

static inline long long fw_memory_bytes(const fw_memory *m)
{
    long long sum = 0;
    for (int i = 0; i < m->count; i++)
        if (m->block[i])
            sum += (long long)1 << m->klass[i];
    return sum;
}

/* Count memory that is not ours: `size` bytes more of it, or fewer if it is negative. */
static inline void fw_pool_charge(fw_pool *pool, long long size)
{
    atomic_fetch_add(&pool->charged, size);
    fw_count(pool, size);
}

static inline long long fw_pool_charged(fw_pool *pool) { return atomic_load(&pool->charged); }
static inline long long fw_pool_receiving(fw_pool *pool) { return atomic_load(&pool->receiving); }
static inline void fw_pool_receive(fw_pool *pool, long long size) { atomic_fetch_add(&pool->receiving, size); }
static inline long long fw_pool_used(fw_pool *pool) { return atomic_load(&pool->used); }
static inline long long fw_pool_peak(fw_pool *pool) { return atomic_load(&pool->peak); }
static inline long long fw_pool_limit(fw_pool *pool) { return atomic_load(&pool->limit); }
static inline long long fw_pool_kept(fw_pool *pool)
{
    pthread_mutex_lock(&pool->lock);
    long long kept = pool->kept;
    pthread_mutex_unlock(&pool->lock);
    return kept;
}

#endif
