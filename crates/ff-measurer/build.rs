//! Compiles the messages of `proto/team.proto` without an installed protoc.

use std::error::Error;

fn main() -> Result<(), Box<dyn Error>> {
    println!("cargo:rerun-if-changed=proto/team.proto");
    #[cfg(feature = "service")]
    {
        let files = protox::compile(["proto/team.proto"], ["proto"])?;
        tonic_prost_build::configure().compile_fds(files)?;
    }
    Ok(())
}
