use super::*;

const NEW: CreateOptions = CreateOptions { overwrite: false, parents: true, ..CreateOptions::SMALL };

fn exists(fs: &PowerCutFileSystem, path: &str) -> bool {
    fs.exists(path.as_ref()).expect("looked")
}

fn read(fs: &PowerCutFileSystem, path: &str) -> Vec<u8> {
    fs.read_all(path.as_ref(), 1 << 20).expect("read")
}

/// The disks after a cut at the end, for every choice.
fn ends(work: impl FnOnce(&PowerCutFileSystem)) -> Vec<PowerCutFileSystem> {
    let fs = PowerCutFileSystem::new();
    fs.mkdirs("/d/e".as_ref()).expect("made");
    fs.start_recording();
    work(&fs);
    let recording = fs.take_recording().expect("written down");
    (0..64).map(|choice| recording.disk_after(recording.len(), choice)).collect()
}

#[test]
fn synced_bytes_survive_and_unsynced_ones_may_be_lost() {
    let disks = ends(|fs| {
        let mut file = fs.create("/d/f".as_ref(), NEW).expect("created");
        file.append(b"synced").expect("appended");
        file.sync().expect("synced");
        file.append(b"flushed").expect("appended");
        file.flush().expect("flushed");
    });
    let found: Vec<_> = disks.iter().map(|fs| read(fs, "/d/f")).collect();
    assert_eq!((&found[0][..], &found[1][..]), (&b"synced"[..], &b"syncedflushed"[..]));
    assert!(found.iter().all(|bytes| bytes.starts_with(b"synced") && bytes.len() <= 13));
    let has = |test: &dyn Fn(&[u8]) -> bool| found.iter().any(|bytes| test(&bytes[6..]));
    assert!(has(&|tail| tail.len() < 7 && !tail.is_empty() && b"flushed".starts_with(tail)), "a part of it");
    assert!(has(&|tail| tail.len() == 7 && tail.ends_with(&[0])), "zeros");
    assert!(has(&|tail| tail.len() == 7 && !tail.ends_with(b"d") && !tail.ends_with(&[0])), "garbage");
    assert!(has(&|tail| tail.ends_with(b"d") && tail.contains(&0)), "a hole");
}

#[test]
fn a_kill_loses_what_was_not_flushed_and_a_later_cut_what_was_not_synced() {
    let fs = PowerCutFileSystem::new();
    fs.start_recording();
    let mut file = fs.create("/d/f".as_ref(), NEW).expect("created");
    file.append(b"flushed").expect("appended");
    file.flush().expect("flushed");
    file.append(b"buffered").expect("appended");
    let recording = fs.take_recording().expect("written down");
    for syncs in [false, true] {
        let next = recording.disk_after_kill(recording.len());
        assert_eq!(read(&next, "/d/f"), b"flushed");
        next.start_recording();
        if syncs {
            next.sync_all("/".as_ref()).expect("synced");
        }
        let recording = next.take_recording().expect("written down");
        let left = recording.disk_after(recording.len(), 0);
        assert_eq!(exists(&left, "/d/f"), syncs, "with sync_all: {syncs}");
        assert!(!syncs || read(&left, "/d/f") == b"flushed");
    }
}

#[test]
fn names_are_durable_with_their_directory() {
    let disks = ends(|fs| {
        fs.create("/d/new".as_ref(), NEW).expect("created").flush().expect("flushed");
        fs.create("/d/e/synced".as_ref(), NEW).expect("created").sync().expect("synced");
        fs.discard("/d/e/none".as_ref()).expect("not there");
    });
    assert!(disks.iter().all(|fs| exists(fs, "/d/e/synced")));
    assert!(disks.iter().any(|fs| exists(fs, "/d/new")) && disks.iter().any(|fs| !exists(fs, "/d/new")));
}

#[test]
fn a_rename_happens_at_both_ends_or_at_none() {
    let fs = PowerCutFileSystem::new();
    fs.mkdirs("/a".as_ref()).expect("made");
    fs.mkdirs("/b".as_ref()).expect("made");
    fs.create("/a/f".as_ref(), NEW).expect("created").sync().expect("synced");
    fs.start_recording();
    fs.rename("/a/f".as_ref(), "/b/f".as_ref()).expect("renamed");
    let recording = fs.take_recording().expect("written down");
    let mut seen = Vec::new();
    for (at, choice) in (0..=recording.len()).flat_map(|at| (0..16).map(move |choice| (at, choice))) {
        let fs = recording.disk_after(at, choice);
        let (from, to) = (exists(&fs, "/a/f"), exists(&fs, "/b/f"));
        assert!(from != to, "{}", recording.steps_around(at));
        seen.push((at, to));
    }
    assert!(seen.contains(&(1, false)) && seen.contains(&(1, true)), "not synced yet");
    assert!(!seen.contains(&(2, false)), "synced at one end is synced");
}

#[test]
fn deletes_are_durable_and_discards_may_be_undone() {
    let disks = ends(|fs| {
        for name in ["/d/x/deleted", "/d/x/discarded"] {
            fs.create(name.as_ref(), NEW).expect("created").sync().expect("synced");
        }
        fs.discard("/d/x/discarded".as_ref()).expect("gone");
    });
    assert!(disks.iter().any(|fs| exists(fs, "/d/x/discarded")));
    let disks = ends(|fs| {
        fs.create("/d/x/deleted".as_ref(), NEW).expect("created").sync().expect("synced");
        fs.delete("/d/x".as_ref()).expect("gone");
    });
    assert!(disks.iter().all(|fs| !exists(fs, "/d/x")));
}

#[test]
fn a_power_cut_yields_the_disk_of_its_step() {
    let fs = PowerCutFileSystem::new();
    fs.start_recording();
    fs.write_atomically("/d/f".as_ref(), b"one").expect("written");
    let first = fs.steps();
    fs.write_atomically("/d/f".as_ref(), b"two").expect("written");
    let recording = fs.take_recording().expect("written down");
    for (at, choice) in (0..=recording.len()).flat_map(|at| (0..16).map(move |choice| (at, choice))) {
        let fs = recording.disk_after(at, choice);
        let found = exists(&fs, "/d/f").then(|| read(&fs, "/d/f"));
        let expected: &[Option<&[u8]>] = match at {
            at if at < first => &[None, Some(b"one")],
            at if at < recording.len() => &[Some(b"one"), Some(b"two")],
            _ => &[Some(b"two")],
        };
        assert!(expected.contains(&found.as_deref()), "{at}: {found:?}\n{}", recording.steps_around(at));
    }
    fs.power_off();
    assert!(fs.exists("/d/f".as_ref()).is_err() && fs.mkdirs("/x".as_ref()).is_err());
}
