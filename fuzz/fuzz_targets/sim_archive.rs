//! Any bytes as a file of documents, plain, as an xz file or as a tar: all that comes out was in
//! it.
#![no_main]

use std::fs;

use ff_archives::read::archive::{self, Document};
use ff_report::skipped::Skips;
use libfuzzer_sys::fuzz_target;

fuzz_target!(|input: &[u8]| {
    let whole: usize = archive::documents(input).map(|part| part.bytes.len()).sum();
    assert!(whole <= input.len());
    let dir = tempfile::tempdir().expect("a folder");
    for name in ["documents", "documents.tar"] {
        let path = dir.path().join(name);
        fs::write(&path, input).expect("written");
        let (mut skips, mut taken) = (Skips::default(), 0_u64);
        let walked = archive::walk(&path, &mut skips, |document: Document<'_>| {
            assert!(document.bytes.len() <= archive::MOST_BYTES && document.first_line > 0);
            taken += 1;
            Ok(())
        });
        walked.expect("it is there");
        assert_eq!(taken, skips.read);
    }
});
