;; A chunker as a component, of files with a record in each line: `wasm-tools parse lines.wat -o lines.wasm`,
;; or `wasmtime.wat2wasm(text)` in Python. Its interface is in chunker.wit.
(component
  (core module $code
    (memory (export "memory") 1)
    (data (i32.const 16) "a line is longer than a chunk may be")
    (data (i32.const 64) "line")
    (global $free (mut i32) (i32.const 128))

    ;; A place for a text or list that the host passes, or for chunks: never given back, as an instance has one file.
    (func $place (export "cabi_realloc") (param $old i32) (param $old_size i32) (param $align i32) (param $size i32)
      (result i32) (local $at i32)
      (local.set $at (i32.and (i32.add (global.get $free) (i32.const 7)) (i32.const -8)))
      (global.set $free (i32.add (local.get $at) (local.get $size)))
      (loop $grow
        (if (i32.gt_u (global.get $free) (i32.mul (memory.size) (i32.const 65536)))
          (then
            (if (i32.lt_s (memory.grow (i32.const 16)) (i32.const 0)) (then unreachable))
            (br $grow))))
      (local.get $at))
    (func $place_of (param $size i32) (result i32)
      (call $place (i32.const 0) (i32.const 0) (i32.const 8) (local.get $size)))

    ;; The type as it is, and nothing else: the host sets the size.
    (func (export "analyze") (param $sample i32) (param $length i32) (param $type i32) (param $type_length i32)
      (result i32) (local $result i32)
      (local.set $result (call $place_of (i32.const 32)))
      (i32.store offset=4 (local.get $result) (local.get $type))
      (i32.store offset=8 (local.get $result) (local.get $type_length))
      (i32.store offset=12 (local.get $result) (i32.const -1))
      (local.get $result))

    (func (export "chunk-file") (param $text i32) (param $length i32) (param $type i32) (param $type_length i32)
      (param $most i32) (param $context i32) (param $params i32) (param $params_length i32)
      (result i32) (local $result i32) (local $chunks i32) (local $chunk i32) (local $start i32) (local $at i32)
      (local.set $result (call $place_of (i32.const 16)))
      (local.set $chunks (call $place_of (i32.const 0)))
      (loop $line
        (local.set $start (local.get $at))
        (block $ended (loop $next
          (br_if $ended (i32.ge_u (local.get $at) (local.get $length)))
          (br_if $ended (i32.eq (i32.load8_u (i32.add (local.get $text) (local.get $at))) (i32.const 10)))
          (local.set $at (i32.add (local.get $at) (i32.const 1)))
          (br $next)))
        (if (i32.gt_u (i32.sub (local.get $at) (local.get $start)) (local.get $most))
          (then ;; result: error, its text, its length
            (i32.store8 (local.get $result) (i32.const 1))
            (i32.store offset=4 (local.get $result) (i32.const 16))
            (i32.store offset=8 (local.get $result) (i32.const 36))
            (return (local.get $result))))
        (if (i32.gt_u (local.get $at) (local.get $start))
          (then ;; a chunk has 64 bytes; what is not set is empty
            (local.set $chunk (call $place_of (i32.const 64)))
            (i32.store offset=8 (local.get $chunk) (local.get $start))
            (i32.store offset=12 (local.get $chunk) (local.get $at))
            (i32.store offset=16 (local.get $chunk) (i32.const 64))
            (i32.store offset=20 (local.get $chunk) (i32.const 4))
            (i32.store offset=8 (local.get $result) (i32.add (i32.load offset=8 (local.get $result)) (i32.const 1)))))
        (local.set $at (i32.add (local.get $at) (i32.const 1)))
        (br_if $line (i32.lt_u (local.get $at) (local.get $length))))
      (i32.store offset=4 (local.get $result) (local.get $chunks))
      (local.get $result)))
  (core instance $core (instantiate $code))

  ;; chunker.wit. An interface names its types, which is why they pass through a component of their own.
  (type $pairs (list (tuple string string)))
  (type $chunk (record (field "id" string) (field "start" u32) (field "end" u32) (field "kind" string)
    (field "content" (option string)) (field "metadata" $pairs) (field "parent-id" (option string))
    (field "children" (list string))))
  (type $config (record (field "file-type" string) (field "max-chunk-size" u32) (field "preserve-context" bool)
    (field "custom-params" $pairs)))
  (func $analyze (param "sample" string) (param "file-type" string) (result (result $config (error string)))
    (canon lift (core func $core "analyze") (memory (core memory $core "memory")) (realloc (core func $core "cabi_realloc"))))
  (func $chunk-file (param "content" string) (param "config" $config) (result (result (list $chunk) (error string)))
    (canon lift (core func $core "chunk-file") (memory (core memory $core "memory")) (realloc (core func $core "cabi_realloc"))))
  (instance $chunker
    (export "chunk" (type $chunk)) (export "chunker-config" (type $config))
    (export "analyze" (func $analyze)) (export "chunk-file" (func $chunk-file)))
  (export "toolgate:librarian/chunker@1.0.0" (instance $chunker)))
