//! Clients that send every cell in every way, and know what the tables must hold.

use std::collections::BTreeMap;

use bytes::Bytes;
use evenkeel_common::CellType;
use evenkeel_protocol::pb;
use evenkeel_protocol::pb::mutation_proto::MutationType;
use prost::Message;

use crate::cells::{
    CHANGES, Call, Change, DELETES, Form, KINDS, Parts, WAYS, is_of_family, mutation, put_message, tag,
};
use crate::common::Server;
use crate::wire::{Codec, Raw};
use crate::{TABLES, failure};

/// The value and the tags of each qualifier of a row; empty if the row must not exist.
type Columns = BTreeMap<Vec<u8>, (Vec<u8>, Vec<u8>)>;
/// A table and a row.
type Row = (usize, Vec<u8>);

pub struct Clients {
    /// A connection of each codec, in the order of [`Codec::ALL`].
    connections: Vec<Raw>,
    /// The region of each table.
    regions: Vec<pb::RegionSpecifier>,
    /// Every row that was named in a request.
    held: BTreeMap<Row, Columns>,
    made: usize,
}

impl Clients {
    pub fn new(server: &Server, regions: Vec<pb::RegionSpecifier>) -> Self {
        let connections = Codec::ALL.map(|codec| Raw::connect(server, codec)).into();
        Self { connections, regions, held: BTreeMap::new(), made: 0 }
    }

    /// Clients of the server's next life.
    pub fn again(self, server: &Server) -> Self {
        Self { held: self.held, ..Self::new(server, self.regions) }
    }

    fn connection(&mut self, codec: Codec) -> &mut Raw {
        let at = Codec::ALL.iter().position(|one| *one == codec);
        &mut self.connections[at.expect("each has one")]
    }

    /// Sends a mutation, and returns the outcome.
    fn send(
        &mut self,
        at: usize,
        (call, form): (Call, Form),
        kind: MutationType,
        cells: &[Parts],
    ) -> Result<(), String> {
        let region = self.regions[at].clone();
        let row = &cells[0].row;
        let (mutation, block) = mutation(cells, kind, form);
        match call {
            Call::Mutate | Call::Check => {
                let condition = (call == Call::Check).then(|| nothing_there(row));
                let request = pb::MutateRequest { region, mutation, condition, nonce_group: None };
                let reply = self.connection(form.codec()).call("Mutate", &request, &block);
                let (reply, _) = reply.message::<pb::MutateResponse>()?;
                assert!(reply.processed != Some(false), "the condition holds");
                Ok(())
            }
            Call::Endpoint => {
                let request =
                    pb::MutateRowsRequest { mutation_request: vec![mutation], ..Default::default() };
                let call = pb::CoprocessorServiceCall {
                    row: row.clone().into(),
                    service_name: "MultiRowMutationService".to_owned(),
                    method_name: "MutateRows".to_owned(),
                    request: request.encode_to_vec().into(),
                };
                let request = pb::CoprocessorServiceRequest { region, call };
                let reply = self.connection(form.codec()).call("ExecService", &request, &[]);
                reply.message::<pb::CoprocessorServiceResponse>().map(drop)
            }
            Call::Atomic | Call::Conditional => {
                let condition = (call == Call::Conditional).then(|| nothing_there(row));
                let other = Parts { qualifier: b"beside".to_vec(), ..Parts::of(MutationType::Put, "") };
                let other = Parts { row: row.clone(), ..other };
                let actions = vec![mutation, put_message(&other)];
                let results =
                    multi(self.connection(form.codec()), region, (true, condition), actions, &block)?;
                if let Some(exception) = &results.exception {
                    return Err(failure(exception));
                }
                assert_ne!(results.processed, Some(false), "the condition holds");
                self.hold(at, &other, Form::Message);
                Ok(())
            }
            Call::Multi | Call::Batch => self.send_between(at, (call, form), mutation, &block),
        }
    }

    /// Sends a mutation between two Puts to other rows. If a cell of a block cannot be parsed, its
    /// length is unknown, so a Put behind it in the same block may fail, too. A Put or Delete with
    /// a cell that is too large fails the whole batch, as in HBase (`RSRpcServices.doBatchOp`).
    fn send_between(
        &mut self,
        at: usize,
        (call, form): (Call, Form),
        between: pb::MutationProto,
        block: &[u8],
    ) -> Result<(), String> {
        let good = |name: &str| Parts::of(MutationType::Put, &format!("{name}{}", self.made));
        let (before, after) = (good("before"), good("after"));
        let is_batch = call == Call::Batch;
        let joins_batch = matches!(between.mutate_type(), MutationType::Put | MutationType::Delete);
        let form_of_good = if is_batch { form } else { Form::Message };
        let [first, last] =
            [&before, &after].map(|put| mutation(std::slice::from_ref(put), MutationType::Put, form_of_good));
        let (actions, block) = (vec![first.0, between, last.0], [&first.1, block, &last.1].concat());
        let region = self.regions[at].clone();
        let results = multi(self.connection(form.codec()), region, (false, None), actions, &block)?;
        let [one, two, three] = &results.result_or_exception[..] else { panic!("{results:?}") };
        let error = two.exception.as_ref().map(failure);
        let is_too_large = error.as_ref().is_some_and(|error| error.contains("exceeds limit of"));
        for (good, result, may_fail) in [(&before, one, false), (&after, three, is_batch)] {
            let is_taken = result.exception.is_none();
            if joins_batch && is_too_large {
                assert_eq!(result.exception.as_ref().map(failure), error, "the batch fails together");
            } else {
                assert!(is_taken || (may_fail && error.is_some()), "others of the batch: {result:?}");
            }
            self.touch(at, &good.row);
            if is_taken {
                self.hold(at, good, form_of_good);
            }
        }
        error.map_or(Ok(()), Err)
    }

    /// Sends a mutation of every kind, with every change, by every kind of request: of one cell,
    /// and of that cell among two good ones.
    pub fn send_all(&mut self) {
        for way in WAYS {
            for kind in KINDS {
                let has_endpoint = !matches!(kind, MutationType::Append | MutationType::Increment);
                if way.0 == Call::Endpoint && !has_endpoint {
                    continue;
                }
                for change in CHANGES {
                    self.send_changed(way, kind, change, false);
                    self.send_changed(way, kind, change, true);
                }
            }
        }
    }

    fn send_changed(
        &mut self,
        way: (Call, Form),
        kind: MutationType,
        (name, change): (&str, Change),
        is_among_others: bool,
    ) {
        self.made += 1;
        let (at, form) = (self.made % TABLES.len(), way.1);
        let (row, code) = (format!("r{}", self.made), DELETES[self.made % DELETES.len()]);
        let is_delete = kind == MutationType::Delete;
        let mut cell = if is_delete { Parts::deleting(code, &row) } else { Parts::of(kind, &row) };
        let Some(is_good) = change(&mut cell, kind, form) else { return };
        if is_delete && is_of_family(code) && !cell.qualifier.is_empty() {
            return;
        }
        let mut cells = vec![(cell, code)];
        if is_among_others {
            let beside =
                ["a", "z"].map(|qualifier| (cells[0].0.beside(kind, qualifier), CellType::DeleteColumn));
            cells.extend(beside);
            cells.rotate_left(self.made % 3);
        }
        let deleted: Vec<_> =
            cells.iter().filter(|_| is_delete).filter_map(|(cell, code)| cell.deleted(*code)).collect();
        deleted.iter().for_each(|put| self.put(at, put));
        let cells: Vec<_> = cells.into_iter().map(|(cell, _)| cell).collect();
        let what = format!("{kind:?} of {name}, among others {is_among_others}, {way:?}");
        cells.iter().for_each(|cell| self.touch_all(at, cell));
        match self.send(at, way, kind, &cells) {
            Ok(()) => assert!(is_good, "{what}: taken"),
            Err(error) => assert!(!is_good, "{what}: {error}"),
        }
        match is_good {
            true if is_delete => deleted.iter().for_each(|put| self.is_gone(at, put)),
            true => cells.iter().for_each(|cell| self.hold(at, cell, form)),
            false => {}
        }
    }

    /// From now on, the rows of a cell must hold only what is known.
    fn touch_all(&mut self, at: usize, cell: &Parts) {
        self.touch(at, &cell.row);
        cell.mutation_row.iter().for_each(|row| {
            self.touch(at, row);
        });
    }

    fn touch(&mut self, at: usize, row: &[u8]) -> &mut Columns {
        self.held.entry((at, row.to_vec())).or_default()
    }

    fn hold(&mut self, at: usize, cell: &Parts, form: Form) {
        let stored = (cell.value.clone(), cell.stored_tags(form));
        self.touch(at, &cell.row).insert(cell.qualifier.clone(), stored);
    }

    fn put(&mut self, at: usize, cell: &Parts) {
        let way = (Call::Mutate, Form::Message);
        self.send(at, way, MutationType::Put, std::slice::from_ref(cell)).expect("it is legal");
        self.hold(at, cell, Form::Message);
    }

    fn is_gone(&mut self, at: usize, cell: &Parts) {
        self.touch(at, &cell.row).remove(&cell.qualifier);
    }

    /// Mutations of a region with a condition that does not hold.
    pub fn send_in_vain(&mut self) {
        for at in 0..TABLES.len() {
            let put = |qualifier: &str| Parts {
                qualifier: qualifier.into(),
                ..Parts::of(MutationType::Put, "a condition that does not hold")
            };
            let compare_type = Some(pb::CompareType::NotEqual as i32);
            let condition = pb::Condition { compare_type, ..nothing_there(&put("a").row) };
            let actions = ["a", "b"].map(|qualifier| put_message(&put(qualifier)));
            let region = self.regions[at].clone();
            let connection = self.connection(Codec::KeyValueWithTags);
            let way = (true, Some(condition));
            let results = multi(connection, region, way, actions.into(), &[]).expect("legal");
            assert_eq!((results.exception, results.processed), (None, Some(false)));
            self.touch(at, &put("a").row);
        }
    }

    /// Increments and Appends whose result exceeds the limit.
    pub fn outgrow(&mut self) {
        let way = (Call::Mutate, Form::KeyValue);
        for at in 0..TABLES.len() {
            let tagged =
                |kind| Parts { tags: tag(64, &[1; 40_000]), ..Parts::of(kind, &format!("tags {kind:?}")) };
            for kind in [MutationType::Append, MutationType::Increment] {
                let cell = tagged(kind);
                self.send(at, way, kind, std::slice::from_ref(&cell)).expect("the first fits");
                self.hold(at, &cell, way.1);
                let others = ["a", "z"].map(|qualifier| cell.beside(kind, qualifier));
                let [before, after] = others;
                let error =
                    self.send(at, way, kind, &[before, cell, after]).expect_err("the tags do not fit");
                assert!(error.contains("80006 > 65535"), "{error}");
            }
            let append = Parts { value: vec![b'v'; 600_000], ..Parts::of(MutationType::Append, "values") };
            let append = std::slice::from_ref(&append);
            self.send(at, way, MutationType::Append, append).expect("the first fits");
            let error = self.send(at, way, MutationType::Append, append).expect_err("the value does not fit");
            assert!(error.contains("exceeds limit of 1000000 bytes"), "{error}");
            self.hold(at, &append[0], way.1);
        }
    }

    /// Checks that every row holds the known cells and no others.
    pub fn check(&mut self, when: &str) {
        self.check_by(Codec::KeyValueWithTags, when);
    }

    /// As [`Clients::check`], through each of the other codecs in turn.
    pub fn check_by_other_codecs(&mut self, when: &str) {
        Codec::ALL.into_iter().skip(1).for_each(|codec| self.check_by(codec, when));
    }

    fn check_by(&mut self, codec: Codec, when: &str) {
        let held = std::mem::take(&mut self.held);
        for ((at, row), columns) in &held {
            if !(1..=32_767).contains(&row.len()) {
                assert!(columns.is_empty(), "no request can name such a row");
                continue;
            }
            let what = format!(
                "{when}, {codec:?}, {:?}: {} of {} bytes",
                TABLES[*at],
                row[..row.len().min(20)].escape_ascii(),
                row.len()
            );
            let region = self.regions[*at].clone();
            let found = self.connection(codec).get(&region, row);
            let found = found.unwrap_or_else(|error| panic!("{what}: {error}"));
            let names = |names: &mut dyn Iterator<Item = &Vec<u8>>| -> Vec<String> {
                names
                    .map(|name| {
                        format!("{}", Bytes::copy_from_slice(&name[..name.len().min(9)]).escape_ascii())
                    })
                    .collect()
            };
            assert_eq!(
                names(&mut found.iter().map(|(qualifier, ..)| qualifier)),
                names(&mut columns.keys()),
                "{what}: the columns"
            );
            for ((qualifier, value, tags), (name, (held_value, held_tags))) in found.iter().zip(columns) {
                assert!(qualifier == name, "{what}: another column");
                assert!(value == held_value, "{what}: another value of {:?}", qualifier.get(..9));
                let held_tags = if codec.has_tags() { &held_tags[..] } else { &[] };
                assert!(tags == held_tags, "{what}: other tags of {:?}", qualifier.get(..9));
            }
        }
        self.held = held;
    }
}

fn multi(
    connection: &mut Raw,
    region: pb::RegionSpecifier,
    (atomic, condition): (bool, Option<pb::Condition>),
    mutations: Vec<pb::MutationProto>,
    block: &[u8],
) -> Result<pb::RegionActionResult, String> {
    let action =
        |(index, mutation)| pb::Action { index: Some(index), mutation: Some(mutation), ..Default::default() };
    let action = (0..).zip(mutations).map(action).collect();
    let of_region = pb::RegionAction { region, atomic: Some(atomic), action, condition };
    let request = pb::MultiRequest { region_action: vec![of_region], ..Default::default() };
    let (reply, _) = connection.call("Multi", &request, block).message::<pb::MultiResponse>()?;
    Ok(reply.region_action_result.into_iter().next().expect("a result"))
}

/// The condition that an unused column is absent.
fn nothing_there(row: &[u8]) -> pb::Condition {
    let comparable = pb::ByteArrayComparable { value: Some(Bytes::new()) };
    let comparator = pb::BinaryComparator { comparable }.encode_to_vec();
    pb::Condition {
        row: row.to_vec().into(),
        family: Some(Bytes::from_static(b"f")),
        qualifier: Some(Bytes::from_static(b"never")),
        compare_type: Some(pb::CompareType::Equal as i32),
        comparator: Some(pb::Comparator {
            name: "org.apache.hadoop.hbase.filter.BinaryComparator".to_owned(),
            serialized_comparator: Some(comparator.into()),
        }),
        ..Default::default()
    }
}
