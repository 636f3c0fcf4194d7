//! Tests with generated archives.

use std::io::Write;

use liblzma::write::XzEncoder;
use tar::{Builder, EntryType, Header};

use super::*;

/// A document: the file's name, the entry, the first line and the text.
type Taken = (String, String, usize, String);

/// Walks, and rejects documents that begin with `bad`.
fn taken(path: &Path) -> (Vec<Taken>, Skips) {
    let (mut all, mut skips) = (Vec::new(), Skips::default());
    let taker = |document: Document<'_>| {
        if document.bytes.starts_with(b"bad") {
            return Err(DocumentError { line: 2, reason: "it is bad".to_owned() });
        }
        let file = Path::new(document.file).file_name().expect("a name");
        let text = String::from_utf8_lossy(document.bytes).into_owned();
        let entry = document.entry.unwrap_or_default().to_owned();
        all.push((file.to_string_lossy().into_owned(), entry, document.first_line, text));
        Ok(())
    };
    walk(path, &mut skips, taker).expect("there is something");
    assert_eq!(skips.read, all.len() as u64);
    (all, skips)
}

/// Appends an entry with any name.
fn append(tar: &mut Builder<Vec<u8>>, name: &str, kind: EntryType, content: &[u8]) {
    let mut header = Header::new_gnu();
    header.as_old_mut().name[..name.len()].copy_from_slice(name.as_bytes());
    header.set_entry_type(kind);
    header.set_size(content.len() as u64);
    header.set_cksum();
    tar.append(&header, content).expect("appended");
}

/// A tar with valid and odd entries.
fn tar() -> Vec<u8> {
    let mut tar = Builder::new(Vec::new());
    append(&mut tar, "folder/", EntryType::Directory, b"");
    append(
        &mut tar,
        "folder/one",
        EntryType::Regular,
        b"@type a 1.0\nfirst 1\nx\n@type a 1.0\nfirst 2\n",
    );
    append(&mut tar, "folder/../two", EntryType::Regular, b"outside");
    append(&mut tar, "/etc/three", EntryType::Regular, b"outside");
    append(&mut tar, "link", EntryType::Symlink, b"");
    append(&mut tar, "bad", EntryType::Regular, b"good 1\ngood 2\nbad\n");
    append(&mut tar, "worse", EntryType::Regular, b"bad 1\nbad 2\n");
    let mut header = Header::new_gnu();
    header.set_size(4);
    let long = "l".repeat(150);
    tar.append_data(&mut header, &long, &b"long"[..]).expect("appended");
    let mut header = Header::new_ustar();
    header.set_size(3);
    tar.append_pax_extensions([("path", long.replace('l', "p").as_bytes())]).expect("appended");
    header.set_path("short").expect("a name");
    header.set_cksum();
    tar.append(&header, &b"pax"[..]).expect("appended");
    tar.into_inner().expect("finished")
}

/// Packs by xz.
fn packed(bytes: &[u8]) -> Vec<u8> {
    let mut encoder = XzEncoder::new(Vec::new(), 1);
    encoder.write_all(bytes).expect("written");
    encoder.finish().expect("finished")
}

/// Writes a file.
fn file(folder: &Path, name: &str, bytes: &[u8]) -> PathBuf {
    let path = folder.join(name);
    fs::write(&path, bytes).expect("written");
    path
}

#[test]
fn tars_are_walked_packed_or_not() {
    let folder = tempfile::tempdir().expect("a folder");
    for (name, bytes) in [("a.tar", tar()), ("b.tar.xz", packed(&tar())), ("c", tar())] {
        let (all, skips) = taken(&file(folder.path(), name, &bytes));
        let found: Vec<_> = all.iter().map(|one| (&*one.1, one.2, &*one.3)).collect();
        let (long, pax) = ("l".repeat(150), "p".repeat(150));
        assert_eq!(
            found,
            [
                ("folder/one", 1, "@type a 1.0\nfirst 1\nx\n"),
                ("folder/one", 4, "@type a 1.0\nfirst 2\n"),
                ("bad", 1, "good 1\n"),
                ("bad", 2, "good 2\nbad\n"),
                (&long, 1, "long"),
                (&pax, 1, "pax"),
            ]
        );
        let skipped: Vec<_> = skips
            .all
            .iter()
            .map(|one| (one.entry.as_deref().expect("an entry"), one.line, &*one.reason))
            .collect();
        assert_eq!(
            skipped,
            [
                ("folder/../two", None, "its name leads out of the archive, or is empty"),
                ("/etc/three", None, "its name leads out of the archive, or is empty"),
                ("link", None, "it is not a file"),
                ("worse", Some(2), "it is bad"),
                ("worse", Some(3), "it is bad"),
            ]
        );
        assert!(skips.all.iter().all(|one| one.file.ends_with(name)));
    }
}

#[test]
fn what_came_before_a_cut_stays_and_the_cut_is_listed() {
    let folder = tempfile::tempdir().expect("a folder");
    let whole = tar();
    let (all, skips) = taken(&file(folder.path(), "a.tar", &whole));
    let mut most = 0;
    let blocks = whole.len() - 1024;
    for end in (0..blocks).step_by(100).chain((0..blocks).step_by(512)) {
        let (found, listed) = taken(&file(folder.path(), "a.tar", &whole[..end]));
        assert_eq!(found, all[..found.len()], "{end}");
        assert!(
            listed
                .all
                .last()
                .is_some_and(|one| one.reason.contains("cut") || one.reason.contains("further")),
            "{end}"
        );
        assert!(listed.all.len() <= skips.all.len() + 2, "{end}: {listed:?}");
        most = most.max(found.len());
    }
    assert_eq!(most, all.len());
    let whole = packed(&whole);
    for end in 0..whole.len() {
        let (found, listed) = taken(&file(folder.path(), "a.tar", &whole[..end]));
        assert_eq!(found, all[..found.len()], "{end}");
        assert!(!listed.all.is_empty(), "{end}");
    }
}

#[test]
fn folders_are_sorted_and_files_are_split() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path();
    fs::create_dir(path.join("b")).expect("made");
    file(path, "c.xz", &packed(b"\nnote 1\nx\nnote 2\n"));
    file(&path.join("b"), "z", b"bad\nbad 2");
    file(&path.join("b"), "a", b"{\n{\n}");
    file(path, "a", b"@type x\n@odd\n");
    file(path, "empty", b"");
    let (all, skips) = taken(path);
    let found: Vec<_> = all.iter().map(|one| (&*one.0, one.2, &*one.3)).collect();
    assert_eq!(
        found,
        [
            ("a", 1, "@type x\n@odd\n"),
            ("a", 1, "{\n{\n}"),
            ("c.xz", 1, "\nnote 1\nx\n"),
            ("c.xz", 4, "note 2\n"),
        ]
    );
    let lines: Vec<_> = skips.all.iter().map(|one| (one.line, &*one.reason)).collect();
    assert_eq!(lines, [(Some(2), "it is bad"), (Some(3), "it is bad")]);
    let nothing = walk(&path.join("none"), &mut Skips::default(), |_| Ok(()));
    nothing.expect_err("there is nothing");
}

#[test]
fn what_is_too_long_is_left_out_alone() {
    let folder = tempfile::tempdir().expect("a folder");
    let mut text = b"note 1\nnote 2\n".to_vec();
    text.resize(MOST_BYTES + 100, b'x');
    text.extend(b"\nnote 3\n");
    let (all, skips) = taken(&file(folder.path(), "a.xz", &packed(&text)));
    let found: Vec<_> = all.iter().map(|one| (one.2, &*one.3)).collect();
    assert_eq!(found, [(1, "note 1\n"), (4, "note 3\n")]);
    let lines: Vec<_> = skips.all.iter().map(|one| (one.line, &*one.reason)).collect();
    assert_eq!(lines, [(Some(2), TOO_LONG)]);
    let mut tar = Builder::new(Vec::new());
    append(&mut tar, "large", EntryType::Regular, &text);
    append(&mut tar, "small", EntryType::Regular, b"note\n");
    let tar = tar.into_inner().expect("finished");
    let (all, skips) = taken(&file(folder.path(), "a.tar", &tar));
    assert_eq!((all.len(), skips.all.len(), &*skips.all[0].reason), (1, 1, TOO_LONG));
}

#[test]
fn an_entry_of_nothing_but_broken_lines_costs_itself_alone() {
    let folder = tempfile::tempdir().expect("a folder");
    let mut tar = Builder::new(Vec::new());
    append(&mut tar, "lines", EntryType::Regular, "bad\n".repeat(MOST_SKIPS).as_bytes());
    append(&mut tar, "good", EntryType::Regular, b"note\n");
    let tar = tar.into_inner().expect("finished");
    let (all, skips) = taken(&file(folder.path(), "a.tar", &tar));
    assert_eq!(all.iter().map(|one| &*one.1).collect::<Vec<_>>(), ["good"]);
    let given_up = skips.all.last().expect("one");
    assert_eq!(given_up.reason, "lines is not read after line 10000: too much of it is broken");
    assert_eq!((skips.all.len(), skips.left_out()), (1001, MOST_SKIPS_OF_ENTRY as u64 + 1));
    // Entries that are broken one by one end the file.
    let mut tar = Builder::new(Vec::new());
    for _ in 0..=MOST_SKIPS {
        append(&mut tar, "bad", EntryType::Regular, b"bad\n");
    }
    append(&mut tar, "good", EntryType::Regular, b"note\n");
    let tar = tar.into_inner().expect("finished");
    let (all, skips) = taken(&file(folder.path(), "b.tar", &tar));
    assert_eq!((all.len(), skips.left_out()), (0, MOST_SKIPS as u64 + 1));
    assert!(skips.all.last().is_some_and(|one| one.reason.ends_with(TOO_MUCH)), "{skips:?}");
}

#[test]
fn an_entry_with_an_endless_name_is_left_out_and_its_name_cut() {
    let folder = tempfile::tempdir().expect("a folder");
    let mut tar = Builder::new(Vec::new());
    for (len, content) in [(4096, "note 1\n"), (4097, "note 2\n")] {
        let mut header = Header::new_gnu();
        header.set_size(content.len() as u64);
        tar.append_data(&mut header, "n".repeat(len), content.as_bytes()).expect("appended");
    }
    append(&mut tar, "next", EntryType::Regular, b"note 3\n");
    let tar = tar.into_inner().expect("finished");
    let (all, skips) = taken(&file(folder.path(), "a.tar", &tar));
    assert_eq!(all.iter().map(|one| &*one.3).collect::<Vec<_>>(), ["note 1\n", "note 3\n"]);
    let [one] = skips.all.as_slice() else { panic!("one: {skips:?}") };
    assert_eq!(one.reason, "its name has more than 4096 bytes");
    assert!(one.entry.as_ref().is_some_and(|name| name.len() < 600), "{skips:?}");
}
