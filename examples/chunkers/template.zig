//! Template of a chunker: paragraphs, which blank lines end. See recutils.c for one that does more.
//!
//! zig build-exe -target wasm32-freestanding -O ReleaseSmall -fno-entry -rdynamic template.zig

const std = @import("std");

const allocator = std.heap.wasm_allocator;

export fn tg_abi() u32 {
    return 1;
}

export fn tg_alloc(size: usize) [*]u8 {
    return (allocator.alloc(u8, size) catch @trap()).ptr;
}

/// What files of this kind are like, as JSON; `tg_chunk` gets it as "config".
export fn tg_analyze(_: [*]const u8, _: usize) u64 {
    return result("null");
}

/// The spans of a file. `config`: {"max_chunk_size": N, "path": TEXT, "config": ...}.
export fn tg_chunk(content: [*]const u8, size: usize, config: [*]const u8, config_size: usize) u64 {
    const Given = struct { max_chunk_size: usize };
    const given = std.json.parseFromSliceLeaky(Given, allocator, config[0..config_size], .{
        .ignore_unknown_fields = true,
    }) catch @trap();
    const text = content[0..size];
    var output: std.ArrayList(u8) = .empty;
    output.append(allocator, '[') catch @trap();
    var at: usize = 0;
    while (at < size) {
        var end = if (std.mem.indexOfPos(u8, text, at, "\n\n")) |found| found + 2 else size;
        end = @min(end, at + given.max_chunk_size);
        while (end < size and text[end] & 0xC0 == 0x80) end -= 1; // whole characters of UTF-8
        if (std.mem.trim(u8, text[at..end], " \t\r\n").len > 0) {
            const comma = if (output.items.len > 1) "," else "";
            const span = std.fmt.allocPrint(
                allocator,
                "{s}{{\"s\":{d},\"e\":{d},\"k\":\"text\"}}",
                .{ comma, at, end },
            ) catch @trap();
            output.appendSlice(allocator, span) catch @trap();
        }
        at = end;
    }
    output.append(allocator, ']') catch @trap();
    return result(output.items);
}

fn result(text: []const u8) u64 {
    return @as(u64, @intFromPtr(text.ptr)) << 32 | text.len;
}
