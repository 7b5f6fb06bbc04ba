//! Template of a chunker: paragraphs, which blank lines end. See recutils.c for one that does more.
//!
//! rustc --target wasm32-unknown-unknown --crate-type cdylib -C opt-level=s -C panic=abort \
//!     -C strip=symbols template.rs

#[no_mangle]
pub extern "C" fn tg_abi() -> u32 {
    1
}

#[no_mangle]
pub extern "C" fn tg_alloc(size: usize) -> *mut u8 {
    Vec::leak(vec![0; size]).as_mut_ptr()
}

/// What files of this kind are like, as JSON; `tg_chunk` gets it as "config".
#[no_mangle]
pub extern "C" fn tg_analyze(_sample: *const u8, _size: usize) -> u64 {
    result("null".to_string())
}

/// The spans of a file. The configuration is {"max_chunk_size": N, "path": TEXT, "config": ...}.
///
/// # Safety
/// The gateway gives places that `tg_alloc` returned.
#[no_mangle]
pub unsafe extern "C" fn tg_chunk(
    content: *const u8,
    size: usize,
    config: *const u8,
    config_size: usize,
) -> u64 {
    let text = std::str::from_utf8_unchecked(std::slice::from_raw_parts(content, size));
    let config = std::str::from_utf8_unchecked(std::slice::from_raw_parts(config, config_size));
    let spans: Vec<String> = paragraphs(text, max_chunk_size(config))
        .map(|(start, end)| format!(r#"{{"s":{start},"e":{end},"k":"text"}}"#))
        .collect();
    result(format!("[{}]", spans.join(",")))
}

fn max_chunk_size(config: &str) -> usize {
    let rest = config.split_once(r#""max_chunk_size":"#).map_or("", |(_, rest)| rest);
    let digits = rest.find(|sign: char| !sign.is_ascii_digit()).unwrap_or(rest.len());
    rest[..digits].parse().unwrap_or(2000)
}

fn paragraphs(text: &str, limit: usize) -> impl Iterator<Item = (usize, usize)> + '_ {
    let mut at = 0;
    std::iter::from_fn(move || {
        while at < text.len() {
            let start = at;
            at = text[start..].find("\n\n").map_or(text.len(), |found| start + found + 2);
            at = at.min(start + limit);
            while !text.is_char_boundary(at) {
                at -= 1;
            }
            if !text[start..at].trim_matches([' ', '\t', '\r', '\n']).is_empty() {
                return Some((start, at));
            }
        }
        None
    })
}

fn result(text: String) -> u64 {
    let text = text.leak();
    (text.as_ptr() as u64) << 32 | text.len() as u64
}
