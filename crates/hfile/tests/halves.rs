//! Halves of a file, as a split leaves them.

mod support;

use evenkeel_common::{CellComparator, KeyBuf, KeyValue};
use evenkeel_hfile::{
    DataBlockEncoding, HFileContext, HFileReader, Half, OpenOptions, ReferenceRange, ScanOptions,
};
use support::{Random, Shape, as_stored, no_cache, random_cells, write};

const ORDER: CellComparator = CellComparator::Default;

fn before(cell: &KeyValue, key: &KeyBuf) -> bool {
    ORDER.compare(&cell.as_cell(), &key.as_cell()).is_lt()
}

fn check(cells: &[KeyValue], context: &HFileContext, row: &[u8]) {
    let written = write(cells, context);
    for range in [ReferenceRange::Top, ReferenceRange::Bottom] {
        let half = Half::at_row(row, range);
        let mine = |cell: &&KeyValue| before(cell, &half.split_key) == (range == ReferenceRange::Bottom);
        let model: Vec<_> = cells.iter().filter(mine).map(|cell| as_stored(cell, context)).collect();
        let options = OpenOptions { half: Some(half), ..OpenOptions::default() };
        let reader = HFileReader::open_path(&written.fs, &written.path, no_cache(), &options).unwrap();
        let mut scanner = reader.scanner(ScanOptions::default());
        let mut more = scanner.seek_to_first().unwrap();
        for cell in &model {
            assert!(more);
            assert_eq!(scanner.cell().map(|cell| KeyValue::copy_of(&cell)).as_ref(), Some(cell));
            more = scanner.next().unwrap();
        }
        assert!(!more && scanner.cell().is_none());
        for cell in cells.iter().step_by(7) {
            let key = cell.as_cell();
            let at = model.partition_point(|cell| ORDER.compare(&cell.as_cell(), &key).is_lt());
            assert_eq!(scanner.seek(&key).unwrap(), at < model.len());
            assert_eq!(scanner.cell().map(|cell| KeyValue::copy_of(&cell)).as_ref(), model.get(at));
            assert_eq!(scanner.seek_before(&key).unwrap(), at > 0);
            let before = at.checked_sub(1).map(|at| &model[at]);
            assert_eq!(scanner.cell().map(|cell| KeyValue::copy_of(&cell)).as_ref(), before);
        }
        assert_eq!(reader.mid_key().unwrap(), None);
    }
}

#[test]
fn each_half_has_its_side_of_the_split_row() {
    let mut random = Random::new(9);
    for case in 0..40 {
        let encoding = random.pick(DataBlockEncoding::ALL);
        let context =
            HFileContext { encoding, block_bytes: random.pick(&[100, 2000]), ..HFileContext::default() };
        let shape = Shape {
            cells: random.pick(&[1, 20, 400]),
            tags: false,
            mvcc: true,
            deletes: true,
            value_bytes_max: 20,
            negative_timestamps: false,
        };
        let cells = random_cells(&mut random, shape);
        let row = match case % 4 {
            0 => b"".to_vec(),
            1 => vec![0xff; 50],
            _ => random.pick(&cells).as_cell().row().to_vec(),
        };
        check(&cells, &context, &row);
    }
}
