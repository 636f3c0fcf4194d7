//! The C header matches the Rust code.

use std::fs;
use std::path::Path;

use ff_proto::auth::EXPORTER_LABEL;

/// The environment variable that makes the test write the header, with any value.
const REWRITE: &str = "FF_WRITE_HEADER";

#[test]
fn the_committed_header_is_up_to_date() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let path = root.join("include/ff_relay_ext.h");
    let config = cbindgen::Config::from_file(root.join("cbindgen.toml")).expect("a good file");
    let bindings = cbindgen::Builder::new()
        .with_config(config)
        .with_src(root.join("src/ffi/status.rs"))
        .with_src(root.join("src/ffi/handle.rs"))
        .with_src(root.join("src/ffi/types.rs"))
        .with_src(root.join("src/ffi.rs"))
        .with_src(root.join("src/ffi/traffic.rs"))
        .with_src(root.join("src/ffi/circuit.rs"))
        .with_src(root.join("src/ffi/rules.rs"))
        .generate()
        .expect("the interface is one that C can have");
    let mut header = Vec::new();
    bindings.write(&mut header);
    if std::env::var_os(REWRITE).is_some() {
        fs::write(&path, &header).expect("the folder can be written to");
    }
    let label = str::from_utf8(EXPORTER_LABEL).expect("ASCII");
    let define = format!("#define FF_EXPORTER_LABEL \"{label}\"\n");
    assert!(str::from_utf8(&header).is_ok_and(|text| text.contains(&define)), "{define}");
    let committed = fs::read(&path).unwrap_or_default();
    assert!(
        committed == header,
        "{} is out of date; {REWRITE}=1 cargo test -p ff-relay-ext --no-default-features --features ffi \
         --test c header writes it",
        path.display()
    );
}
