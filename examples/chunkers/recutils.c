/* Chunker of GNU recutils files (*.rec): each record is a chunk, named by the value of its first
 * field. Comments and record descriptors between records are gaps. A record that is too long is cut
 * between lines.
 *
 * zig cc --target=wasm32-freestanding -Os -nostdlib -Wl,--no-entry -Wl,--strip-all \
 *     -o recutils.wasm recutils.c
 */

typedef unsigned char u8;
typedef unsigned int u32;
typedef unsigned long long u64;

#define EXPORT(name) __attribute__((export_name(#name)))
#define PAGE 65536u

extern u8 __heap_base;
static u8 *top; /* of what is allocated; nothing is freed, as an instance reads one file */

static u8 *take(u32 size) {
    u8 *found = top ? top : &__heap_base;
    u64 end = (u64)(u32)found + size;
    u64 have = (u64)__builtin_wasm_memory_size(0) * PAGE;
    if (end > have) {
        u64 more = (end - have + PAGE - 1) / PAGE;
        if (more > have / PAGE || more < 16) more = more < 16 ? 16 : more;
        if (__builtin_wasm_memory_grow(0, (u32)more) == (u32)-1) __builtin_trap();
    }
    top = (u8 *)(u32)end;
    return found;
}

EXPORT(tg_abi) u32 tg_abi(void) { return 1; }
EXPORT(tg_alloc) u8 *tg_alloc(u32 size) { return take((size + 7) & ~7u); }

/* JSON, written at the top of the memory. */
static u8 *out;
static void put(u8 byte) { *take(1) = byte; }
static void text(const char *from) { while (*from) put((u8)*from++); }
static void number(u32 value) {
    u8 digits[10];
    int n = 0;
    do digits[n++] = (u8)('0' + value % 10); while (value /= 10);
    while (n) put(digits[--n]);
}
static void quoted(const u8 *from, u32 size) {
    put('"');
    for (u32 i = 0; i < size; i++) {
        if (from[i] == '"' || from[i] == '\\') put('\\');
        if (from[i] >= 32 && from[i] != 127) put(from[i]);
    }
    put('"');
}
static u64 result(void) { return (u64)(u32)out << 32 | (u32)(top - out); }

/* What files of this kind are like; `tg_chunk` gets it as "config". Nothing here. */
EXPORT(tg_analyze) u64 tg_analyze(const u8 *sample, u32 size) {
    (void)sample, (void)size;
    out = take(0);
    text("null");
    return result();
}

static u32 max_chunk_size(const u8 *config, u32 size) {
    static const char key[] = "\"max_chunk_size\":";
    u32 length = sizeof key - 1, found = 0;
    for (u32 i = 0; i + length < size; i++) {
        u32 k = 0;
        while (k < length && config[i + k] == (u8)key[k]) k++;
        if (k < length) continue;
        for (i += length; i < size && config[i] >= '0' && config[i] <= '9'; i++)
            found = found * 10 + (config[i] - '0');
        break;
    }
    return found ? found : 2000;
}

static const u8 *data;
static u32 data_size, spans;

static u32 line_end(u32 at) {
    while (at < data_size && data[at] != '\n') at++;
    return at < data_size ? at + 1 : at;
}
static int blank(u32 at, u32 end) {
    for (; at < end; at++)
        if (data[at] != ' ' && data[at] != '\t' && data[at] != '\r' && data[at] != '\n') return 0;
    return 1;
}

/* The value of the first field: what the record is about. At most 200 bytes, in whole characters. */
static void symbol(u32 at, u32 end) {
    u32 stop = line_end(at), from = at;
    if (stop > end) stop = end;
    while (from < stop && data[from] != ':') from++;
    if (from < stop) from++; else from = at;
    while (from < stop && data[from] == ' ') from++;
    while (stop > from && blank(stop - 1, stop)) stop--;
    if (stop - from > 200) {
        stop = from + 200;
        while ((data[stop] & 0xC0) == 0x80) stop--;
    }
    text(",\"m\":{\"symbol\":");
    quoted(data + from, stop - from);
    put('}');
}

static void span(u32 start, u32 end, const char *kind, int named) {
    text(spans++ ? ",{\"s\":" : "{\"s\":");
    number(start);
    text(",\"e\":");
    number(end);
    text(",\"k\":\"");
    text(kind);
    put('"');
    if (named) symbol(start, end);
    put('}');
}

/* A record in parts of at most `limit` bytes, which are cut between lines where that is possible. */
static void record(u32 start, u32 end, u32 limit) {
    int first = 1;
    while (start < end) {
        u32 stop = start;
        for (u32 next = line_end(stop); stop < end && next - start <= limit; next = line_end(stop))
            stop = next;
        if (stop == start) {
            stop = start + limit < end ? start + limit : end;
            while (stop < end && (data[stop] & 0xC0) == 0x80) stop--;
        }
        if (stop > end) stop = end;
        if (!blank(start, stop)) span(start, stop, "record", first);
        first = 0;
        start = stop;
    }
}

EXPORT(tg_chunk) u64 tg_chunk(const u8 *content, u32 size, const u8 *config, u32 config_size) {
    u32 limit = max_chunk_size(config, config_size), at = 0;
    data = content, data_size = size, spans = 0;
    out = take(0);
    put('[');
    while (at < size) {
        u32 start = at, end = at;
        int comment = data[at] == '#' || data[at] == '%';
        while (end < size && !blank(end, line_end(end)) &&
               (data[end] == '#' || data[end] == '%') == comment)
            end = line_end(end);
        if (end == start) end = line_end(end); /* a blank line, which needs no span */
        else if (comment) span(start, end, "gap", 0);
        else record(start, end, limit);
        at = end;
    }
    put(']');
    return result();
}
