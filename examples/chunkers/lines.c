/* Chunker of files with a record in each line, as a component: the functions of `chunker.wit` in
 * the layout of the Canonical ABI, which wit-bindgen would write.
 *
 * zig cc --target=wasm32-freestanding -Os -nostdlib -Wl,--no-entry -Wl,--strip-all \
 *     -o lines-core.wasm lines.c
 * node component.mjs
 */

typedef unsigned char u8;
typedef unsigned int u32;
typedef unsigned long long u64;

#define PAGE 65536u
#define NAME "toolgate:librarian/chunker@1.0.0#"
#define EXPORT(name) __attribute__((export_name(name)))

typedef struct { const u8 *data; u32 size; } Text;
typedef struct {
    Text id;
    u32 start, end;
    Text kind;
    u32 has_content; Text content;
    Text metadata;
    u32 has_parent; Text parent;
    Text children;
} Chunk;
typedef struct { Text type; u32 most, context; Text params; } Config;
typedef struct { u32 is_error; Config config; } Analyzed;
typedef struct { u32 is_error; Text value; } Chunked;

extern u8 __heap_base;
static u8 *top; /* nothing is freed, as an instance reads one file */

EXPORT("cabi_realloc") void *place(void *old, u32 had, u32 align, u32 size) {
    u32 found = (u32)(top ? top : &__heap_base) + 7 & ~7u;
    u64 end = (u64)found + size, have = (u64)__builtin_wasm_memory_size(0) * PAGE;
    (void)align;
    if (end > have && __builtin_wasm_memory_grow(0, (u32)((end - have) / PAGE) + 16) == (u32)-1)
        __builtin_trap();
    top = (u8 *)(u32)end;
    for (u32 i = 0; i < size; i++) ((u8 *)found)[i] = i < had ? ((u8 *)old)[i] : 0;
    return (void *)found;
}

static const char LONG[] = "a line is longer than a chunk may be", LINE[] = "line";

EXPORT(NAME "analyze") Analyzed *analyze(const u8 *sample, u32 size, const u8 *type, u32 length) {
    Analyzed *result = place(0, 0, 8, sizeof *result);
    (void)sample, (void)size;
    result->config = (Config){{type, length}, 0xffffffff, 0, {0, 0}}; /* the host sets the size */
    return result;
}

EXPORT(NAME "chunk-file")
Chunked *chunk_file(const u8 *data, u32 size, const u8 *type, u32 length, u32 most, u32 context,
                    const u8 *params, u32 count) {
    Chunked *result = place(0, 0, 8, sizeof *result);
    (void)type, (void)length, (void)context, (void)params, (void)count;
    result->value.data = place(0, 0, 8, 0);
    for (u32 start = 0, at = 0; start < size; start = ++at) {
        while (at < size && data[at] != '\n') at++;
        if (at - start > most)
            return *result = (Chunked){1, {(const u8 *)LONG, sizeof LONG - 1}}, result;
        if (at == start) continue;
        Chunk *one = place(0, 0, 8, sizeof *one);
        one->start = start, one->end = at;
        one->kind = (Text){(const u8 *)LINE, sizeof LINE - 1};
        result->value.size++;
    }
    return result;
}
