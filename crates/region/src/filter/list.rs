//! FilterList: filters joined by AND (`MUST_PASS_ALL`) or OR (`MUST_PASS_ONE`).
//!
//! A return code has two parts: whether to take the cell, and how far to skip (one cell, one
//! column, the row). An AND takes the cell if all members do, and skips as far as the farthest
//! member. An OR takes it if any member does, and skips only as far as the nearest. In an AND, a
//! seek hint overrides all other codes. In an OR, it holds only if every member gives one.
//!
//! * An AND stops at the first member that rejects, so that members that count do not see cells
//!   that are not served; it still calls members that [hint](Filter::is_hinting). The farthest hint
//!   holds.
//! * An OR calls every member, except one that is already done with this column, row or everything
//!   up to its hint: the scan continues there only for the other members. The nearest hint holds.

use std::cmp::Ordering;

use bytes::Bytes;
use evenkeel_common::{CellBuffer, CellComparator, CellRef, KeyBuf, Result};
use evenkeel_protocol::pb;

use super::parse::{Parser, decode, missing};
use super::{Filter, ReplacedValue, ReturnCode};

pub(super) fn parse(parser: &mut Parser, bytes: &Bytes) -> Result<Box<dyn Filter>> {
    use pb::filter_list::Operator;
    let proto: pb::FilterList = decode(bytes, &[(1, "operator")])?;
    let operator = Operator::try_from(proto.operator).map_err(|_| missing("operator"))?;
    let members = proto.filters.iter().map(|f| parser.nested(f)).collect::<Result<Vec<_>>>()?;
    Ok(match operator {
        Operator::MustPassAll => Box::new(AndList::new(members)),
        Operator::MustPassOne => Box::new(OrList::new(members)),
    })
}

/// How far to skip after a cell.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Step {
    Cell,
    Column,
    Row,
}

/// Returns the two parts of a code. A seek hint returns `(false, Step::Cell)` and must be handled
/// separately.
fn parts(code: ReturnCode) -> (bool, Step) {
    match code {
        ReturnCode::Include => (true, Step::Cell),
        ReturnCode::IncludeAndNextCol => (true, Step::Column),
        ReturnCode::IncludeAndSeekNextRow => (true, Step::Row),
        ReturnCode::Skip | ReturnCode::SeekNextUsingHint => (false, Step::Cell),
        ReturnCode::NextCol => (false, Step::Column),
        ReturnCode::NextRow => (false, Step::Row),
    }
}

fn code_of(include: bool, step: Step) -> ReturnCode {
    match (include, step) {
        (true, Step::Cell) => ReturnCode::Include,
        (true, Step::Column) => ReturnCode::IncludeAndNextCol,
        (true, Step::Row) => ReturnCode::IncludeAndSeekNextRow,
        (false, Step::Cell) => ReturnCode::Skip,
        (false, Step::Column) => ReturnCode::NextCol,
        (false, Step::Row) => ReturnCode::NextRow,
    }
}

fn and_codes(a: ReturnCode, b: ReturnCode) -> ReturnCode {
    if a == ReturnCode::SeekNextUsingHint || b == ReturnCode::SeekNextUsingHint {
        return ReturnCode::SeekNextUsingHint;
    }
    let ((a_in, a_step), (b_in, b_step)) = (parts(a), parts(b));
    code_of(a_in && b_in, a_step.max(b_step))
}

fn or_codes(a: ReturnCode, b: ReturnCode) -> ReturnCode {
    if a == ReturnCode::SeekNextUsingHint && a == b {
        return a;
    }
    let ((a_in, a_step), (b_in, b_step)) = (parts(a), parts(b));
    code_of(a_in || b_in, a_step.min(b_step))
}

/// Compares keys in scan order: a reversed scan reads rows in descending order, and a row's cells
/// in the usual order.
fn compare(a: &CellRef<'_>, b: &CellRef<'_>, reversed: bool) -> Ordering {
    if reversed && a.row() != b.row() { b.row().cmp(a.row()) } else { CellComparator::Default.compare(a, b) }
}

/// Applies the transforms of the included members in sequence.
fn transform<'f>(members: impl Iterator<Item = &'f dyn Filter>, cell: &CellRef<'_>) -> Option<ReplacedValue> {
    members.fold(None, |replaced, member| match replaced {
        None => member.transform(cell),
        Some(value) => member.transform(&cell.with_value(value.as_bytes())).or(replaced),
    })
}

struct AndList {
    members: Vec<Box<dyn Filter>>,
    /// Indexes of members that returned `SeekNextUsingHint` for the last cell.
    seeking: Vec<usize>,
    reversed: bool,
}

impl AndList {
    fn new(members: Vec<Box<dyn Filter>>) -> Self {
        Self { seeking: Vec::with_capacity(members.len()), members, reversed: false }
    }

    /// Calls members up to the first that rejects. Returns the combined code, and how many were
    /// called.
    fn filter_until_rejected(&mut self, cell: &CellRef<'_>) -> Result<(ReturnCode, usize)> {
        let mut code = ReturnCode::Include;
        for (i, member) in self.members.iter_mut().enumerate() {
            if member.filter_all_remaining() {
                return Ok((ReturnCode::NextRow, i + 1));
            }
            let said = member.filter_cell(cell)?;
            if said == ReturnCode::SeekNextUsingHint {
                self.seeking.push(i);
            }
            code = and_codes(code, said);
            if !code.includes() {
                return Ok((code, i + 1));
            }
        }
        Ok((code, self.members.len()))
    }
}

impl Filter for AndList {
    fn reset(&mut self) {
        self.members.iter_mut().for_each(|m| m.reset());
        self.seeking.clear();
    }

    /// Calls every member, because some record the row. A member that could still give a hint keeps
    /// the row.
    fn filter_row_key(&mut self, first_cell: &CellRef<'_>) -> Result<bool> {
        let (mut any_refused, mut hint_possible) = (false, false);
        for member in &mut self.members {
            if member.filter_all_remaining() {
                return Ok(true);
            }
            if member.filter_row_key(first_cell)? {
                any_refused = true;
            } else {
                hint_possible |= member.is_hinting();
            }
        }
        Ok(any_refused && !hint_possible)
    }

    fn filter_all_remaining(&self) -> bool {
        self.members.iter().any(|m| m.filter_all_remaining())
    }

    fn filter_cell(&mut self, cell: &CellRef<'_>) -> Result<ReturnCode> {
        self.seeking.clear();
        let (code, asked) = self.filter_until_rejected(cell)?;
        for (i, member) in self.members.iter_mut().enumerate().skip(asked) {
            if member.is_hinting() && member.filter_cell(cell)? == ReturnCode::SeekNextUsingHint {
                self.seeking.push(i);
            }
        }
        Ok(if self.seeking.is_empty() { code } else { ReturnCode::SeekNextUsingHint })
    }

    fn transform(&self, cell: &CellRef<'_>) -> Option<ReplacedValue> {
        transform(self.members.iter().map(|m| &**m), cell)
    }

    fn filter_row_cells(&mut self, cells: &mut CellBuffer, from: usize) -> Result<()> {
        self.members.iter_mut().try_for_each(|m| m.filter_row_cells(cells, from))
    }

    fn has_filter_row(&self) -> bool {
        self.members.iter().any(|m| m.has_filter_row())
    }

    /// Stops at the first member that rejects the row.
    fn filter_row(&mut self) -> Result<bool> {
        for member in &mut self.members {
            if member.filter_row()? {
                return Ok(true);
            }
        }
        Ok(false)
    }

    fn next_cell_hint(&mut self, cell: &CellRef<'_>) -> Result<Option<KeyBuf>> {
        let mut farthest: Option<KeyBuf> = None;
        for i in &self.seeking {
            let Some(member) = self.members.get_mut(*i) else { continue };
            if member.filter_all_remaining() {
                continue;
            }
            let Some(hint) = member.next_cell_hint(cell)? else { continue };
            let is_farther = |f: &KeyBuf| compare(&f.as_cell(), &hint.as_cell(), self.reversed).is_lt();
            if farthest.as_ref().is_none_or(is_farther) {
                farthest = Some(hint);
            }
        }
        Ok(farthest)
    }

    fn is_family_essential(&self, family: &[u8]) -> bool {
        self.members.is_empty() || self.members.iter().any(|m| m.is_family_essential(family))
    }

    fn set_reversed(&mut self, reversed: bool) {
        self.reversed = reversed;
        self.members.iter_mut().for_each(|m| m.set_reversed(reversed));
    }
}

/// A member of an OR, and its last code in this row.
struct Member {
    filter: Box<dyn Filter>,
    included: bool,
    last_code: Option<ReturnCode>,
    /// The cell of the last code, if it matters: for any code but Include and Skip.
    last_cell: KeyBuf,
    /// The hint of `SeekNextUsingHint`, once it was requested.
    hint: Option<KeyBuf>,
}

impl Member {
    fn new(filter: Box<dyn Filter>) -> Self {
        Self { filter, included: false, last_code: None, last_cell: KeyBuf::default(), hint: None }
    }

    fn reset(&mut self) {
        self.filter.reset();
        self.included = false;
        self.last_code = None;
        self.hint = None;
    }

    /// Returns the code for this cell if the member's last code covers it, so that the member need
    /// not be called.
    fn cached_code(&mut self, cell: &CellRef<'_>, reversed: bool) -> Result<Option<ReturnCode>> {
        let Some(said) = self.last_code else { return Ok(None) };
        let holds = match parts(said) {
            _ if said == ReturnCode::SeekNextUsingHint => return self.before_hint(cell, reversed),
            (_, Step::Cell) => return Ok(None),
            (_, Step::Column) => self.last_cell.as_cell().same_column(cell),
            (_, Step::Row) => self.last_cell.as_cell().family() == cell.family(),
        };
        Ok(holds.then(|| code_of(false, parts(said).1)))
    }

    fn before_hint(&mut self, cell: &CellRef<'_>, reversed: bool) -> Result<Option<ReturnCode>> {
        if self.hint.is_none() {
            self.hint = self.filter.next_cell_hint(&self.last_cell.as_cell())?;
        }
        let before = self.hint.as_ref().is_some_and(|h| compare(cell, &h.as_cell(), reversed).is_lt());
        Ok(before.then_some(ReturnCode::SeekNextUsingHint))
    }

    fn ask(&mut self, cell: &CellRef<'_>, reversed: bool) -> Result<Option<ReturnCode>> {
        self.included = false;
        if self.filter.filter_all_remaining() {
            return Ok(None);
        }
        let before = self.cached_code(cell, reversed)?;
        let said = match before {
            Some(said) => said,
            None => {
                self.hint = None;
                self.filter.filter_cell(cell)?
            }
        };
        self.last_code = Some(said);
        if !matches!(said, ReturnCode::Include | ReturnCode::Skip) {
            self.last_cell.set_to(cell);
        }
        self.included = said.includes();
        Ok(Some(said))
    }
}

struct OrList {
    members: Vec<Member>,
    reversed: bool,
}

impl OrList {
    fn new(members: Vec<Box<dyn Filter>>) -> Self {
        Self { members: members.into_iter().map(Member::new).collect(), reversed: false }
    }
}

impl Filter for OrList {
    fn reset(&mut self) {
        self.members.iter_mut().for_each(Member::reset);
    }

    fn filter_row_key(&mut self, first_cell: &CellRef<'_>) -> Result<bool> {
        let mut all_refused = !self.members.is_empty();
        for Member { filter, .. } in &mut self.members {
            all_refused &= filter.filter_all_remaining() || filter.filter_row_key(first_cell)?;
        }
        Ok(all_refused)
    }

    fn filter_all_remaining(&self) -> bool {
        !self.members.is_empty() && self.members.iter().all(|m| m.filter.filter_all_remaining())
    }

    fn filter_cell(&mut self, cell: &CellRef<'_>) -> Result<ReturnCode> {
        if self.members.is_empty() {
            return Ok(ReturnCode::Include);
        }
        let mut code = None;
        for member in &mut self.members {
            let Some(said) = member.ask(cell, self.reversed)? else { continue };
            code = Some(code.map_or(said, |code| or_codes(code, said)));
        }
        Ok(code.unwrap_or(ReturnCode::Skip))
    }

    fn transform(&self, cell: &CellRef<'_>) -> Option<ReplacedValue> {
        transform(self.members.iter().filter(|m| m.included).map(|m| &*m.filter), cell)
    }

    fn filter_row_cells(&mut self, cells: &mut CellBuffer, from: usize) -> Result<()> {
        self.members.iter_mut().try_for_each(|m| m.filter.filter_row_cells(cells, from))
    }

    fn has_filter_row(&self) -> bool {
        self.members.iter().any(|m| m.filter.has_filter_row())
    }

    /// Stops at the first member that takes the row.
    fn filter_row(&mut self) -> Result<bool> {
        for member in &mut self.members {
            if !member.filter.filter_row()? {
                return Ok(false);
            }
        }
        Ok(!self.members.is_empty())
    }

    fn next_cell_hint(&mut self, cell: &CellRef<'_>) -> Result<Option<KeyBuf>> {
        let mut nearest: Option<KeyBuf> = None;
        for Member { filter, .. } in &mut self.members {
            if filter.filter_all_remaining() {
                continue;
            }
            let Some(hint) = filter.next_cell_hint(cell)? else { return Ok(None) };
            let is_nearer = |n: &KeyBuf| compare(&n.as_cell(), &hint.as_cell(), self.reversed).is_gt();
            if nearest.as_ref().is_none_or(is_nearer) {
                nearest = Some(hint);
            }
        }
        Ok(nearest)
    }

    fn is_family_essential(&self, family: &[u8]) -> bool {
        self.members.is_empty() || self.members.iter().any(|m| m.filter.is_family_essential(family))
    }

    fn set_reversed(&mut self, reversed: bool) {
        self.reversed = reversed;
        self.members.iter_mut().for_each(|m| m.filter.set_reversed(reversed));
    }
}
