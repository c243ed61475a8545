//! AggregateService: minimum, maximum, sum, row count and other aggregates of one column of one
//! region, for the three column interpreters of HBase's client: Long, Double and BigDecimal.
//!
//! It aggregates the first family of the scan. The first of its qualifiers is the value, and for
//! the median, the second is the weight.

use std::sync::Arc;

use bytes::Bytes;
use evenkeel_common::{CallerState, CellBuffer, CellRef, Charge, HBaseError, Result, TryError};
use evenkeel_protocol::pb;
use evenkeel_region::filter;
use evenkeel_region::operations::Scan;
use evenkeel_region::region::{Region, RegionScanner};
use evenkeel_region::scanner::{ReplyCharge, ScannerContext, TimeSlice};
use prost::Message;

use crate::RegionServer;
use crate::convert::read;
use crate::coprocessor::decimal::Hundredths;

const FIRST_KEY_ONLY_FILTER: &str = "org.apache.hadoop.hbase.filter.FirstKeyOnlyFilter";
const INTERPRETERS: &str = "org.apache.hadoop.hbase.client.coprocessor.";

/// The service's methods.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Method {
    /// The largest value.
    Max,
    /// The smallest value.
    Min,
    /// The sum of the values.
    Sum,
    /// The number of rows with any cell.
    RowNum,
    /// Sum and row count, from which the client computes the mean.
    Avg,
    /// Sum, sum of squares and row count, from which the client computes the standard deviation.
    Std,
    /// Sum of values and sum of weights, with which the client searches for the median.
    Median,
}

impl Method {
    /// Returns the method with a name.
    pub fn by_name(name: &str) -> Option<Self> {
        Some(match name {
            "GetMax" => Self::Max,
            "GetMin" => Self::Min,
            "GetSum" => Self::Sum,
            "GetRowNum" => Self::RowNum,
            "GetAvg" => Self::Avg,
            "GetStd" => Self::Std,
            "GetMedian" => Self::Median,
            _ => return None,
        })
    }
}

/// A row up to this size is not charged.
const ROW_BYTES_UNCHARGED: u64 = 64 << 10;

/// Runs a method over a region, as long as its caller waits.
///
/// # Errors
/// `DoNotRetryIOException` for a scan with no family or an interpreter that is not built in;
/// `CallQueueTooBigException` if the budget for replies does not admit a large row; the errors of
/// [`CallerState::check`]; errors of reading.
pub fn run(
    server: &RegionServer,
    region: &Arc<Region>,
    method: Method,
    request: &pb::AggregateRequest,
    state: &CallerState,
) -> Result<pb::AggregateResponse> {
    let interpreter = Interpreter::by_class(&request.interpreter_class_name)?;
    let mut scan = read::scan(&request.scan, server.config.load_families_on_demand)?.scan;
    let columns = Columns::of(&scan)?;
    if method == Method::RowNum && scan.filter.is_none() && columns.value.is_none() {
        let first_key_only =
            pb::Filter { name: FIRST_KEY_ONLY_FILTER.to_owned(), serialized_filter: Some(Bytes::new()) };
        scan.filter = Some(filter::from_proto(&first_key_only)?);
    }
    let mut totals = Totals::default();
    let scanner = region.scanner(scan)?;
    for_each_row(server, scanner, state, |row| totals.add_row(method, interpreter, &columns, row))?;
    totals.response(method, interpreter)
}

/// Passes each row to `each`. A large row is charged to the budget for replies while it is held.
fn for_each_row(
    server: &RegionServer,
    mut scanner: RegionScanner,
    state: &CallerState,
    mut each: impl FnMut(&CellBuffer) -> Result<()>,
) -> Result<()> {
    let mut row = CellBuffer::new();
    let mut context = ScannerContext::within(TimeSlice::while_awaited(state.clone()));
    loop {
        let charge = Charge::none(Arc::clone(&server.unsent));
        context.set_charge(ReplyCharge::new(charge, ROW_BYTES_UNCHARGED));
        let next = scanner.next(&mut row, &mut context).map_err(TryError::into_failure)?;
        if !row.is_empty() {
            each(&row)?;
        }
        match row.encoded_len() as u64 > ROW_BYTES_UNCHARGED {
            // Frees the memory of a large row before its charge is released.
            true => row = CellBuffer::new(),
            false => row.clear(),
        }
        drop(context.take_charge());
        if !next.has_more() {
            return Ok(());
        }
    }
}

/// The columns that are aggregated.
struct Columns {
    value: Option<Bytes>,
    weight: Option<Bytes>,
}

impl Columns {
    fn of(scan: &Scan) -> Result<Self> {
        let family =
            scan.families.first().ok_or_else(|| HBaseError::do_not_retry("the scan names no family"))?;
        let mut qualifiers = family.qualifiers.iter().flatten().cloned();
        Ok(Self { value: qualifiers.next(), weight: qualifiers.next() })
    }
}

/// Parses and adds values.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Interpreter {
    Long,
    Double,
    Decimal,
}

/// A value of a column, or a total.
#[derive(Clone, Copy, Debug, PartialEq, PartialOrd)]
enum Number {
    Long(i64),
    Double(f64),
    Decimal(Hundredths),
}

impl Interpreter {
    fn by_class(class: &str) -> Result<Self> {
        match class.strip_prefix(INTERPRETERS) {
            Some("LongColumnInterpreter") => Ok(Self::Long),
            Some("DoubleColumnInterpreter") => Ok(Self::Double),
            Some("BigDecimalColumnInterpreter") => Ok(Self::Decimal),
            _ => Err(HBaseError::do_not_retry(format!("the column interpreter {class} is not built in"))),
        }
    }

    /// Returns the value of a cell; `None` if it is no number of this kind.
    fn value(self, cell: &CellRef<'_>) -> Result<Option<Number>> {
        let eight = || cell.value().try_into().ok();
        Ok(match self {
            Self::Long => eight().map(|bytes| Number::Long(i64::from_be_bytes(bytes))),
            Self::Double => eight().map(|bytes| Number::Double(f64::from_be_bytes(bytes))),
            Self::Decimal => Hundredths::read(cell.value())?.map(Number::Decimal),
        })
    }

    /// Returns the sum of weights if there are none.
    fn least(self) -> Number {
        match self {
            Self::Long => Number::Long(i64::MIN),
            // Java's Double.MIN_VALUE, the smallest positive value; as a decimal it rounds to zero.
            Self::Double => Number::Double(f64::from_bits(1)),
            Self::Decimal => Number::Decimal(Hundredths(0)),
        }
    }
}

impl Number {
    fn add(self, other: Self) -> Result<Self> {
        Ok(match (self, other) {
            // Integers wrap as in Java.
            (Self::Long(a), Self::Long(b)) => Self::Long(a.wrapping_add(b)),
            (Self::Double(a), Self::Double(b)) => Self::Double(a + b),
            (Self::Decimal(a), Self::Decimal(b)) => Self::Decimal(a.plus(b)?),
            _ => return Err(HBaseError::do_not_retry("numbers of two kinds")),
        })
    }

    fn squared(self) -> Result<Self> {
        Ok(match self {
            Self::Long(a) => Self::Long(a.wrapping_mul(a)),
            Self::Double(a) => Self::Double(a * a),
            Self::Decimal(a) => Self::Decimal(a.times(a)?),
        })
    }

    fn write(self) -> Bytes {
        match self {
            Self::Long(long_msg) => pb::LongMsg { long_msg }.encode_to_vec().into(),
            Self::Double(double_msg) => pb::DoubleMsg { double_msg }.encode_to_vec().into(),
            Self::Decimal(number) => {
                pb::BigDecimalMsg { bigdecimal_msg: number.write().into() }.encode_to_vec().into()
            }
        }
    }
}

/// Adds to a total, which is `None` until the first value.
fn add(total: &mut Option<Number>, number: Option<Number>) -> Result<()> {
    *total = match (*total, number) {
        (Some(total), Some(number)) => Some(total.add(number)?),
        (total, number) => total.or(number),
    };
    Ok(())
}

#[derive(Default)]
struct Totals {
    best: Option<Number>,
    sum: Option<Number>,
    squares: Option<Number>,
    weights: Option<Number>,
    rows: i64,
}

impl Totals {
    fn add_row(
        &mut self,
        method: Method,
        interpreter: Interpreter,
        columns: &Columns,
        row: &CellBuffer,
    ) -> Result<()> {
        self.rows += 1;
        if method == Method::RowNum {
            return Ok(());
        }
        let (mut of_row, mut weight) = (None, None);
        for cell in row.iter() {
            let number = interpreter.value(&cell)?;
            let is_weight = method == Method::Median && columns.weight.as_deref() == Some(cell.qualifier());
            match (is_weight, method) {
                (true, _) => add(&mut weight, number)?,
                (false, Method::Max | Method::Min) => self.compare(method, number),
                (false, _) => add(&mut of_row, number)?,
            }
        }
        add(&mut self.sum, of_row)?;
        add(&mut self.weights, weight)?;
        let square = of_row.filter(|_| method == Method::Std).map(Number::squared).transpose()?;
        add(&mut self.squares, square)
    }

    fn compare(&mut self, method: Method, number: Option<Number>) {
        let Some(number) = number else { return };
        let better =
            self.best.is_none_or(|best| if method == Method::Max { number > best } else { number < best });
        if better {
            self.best = Some(number);
        }
    }

    /// Returns the parts of the response; none if there was no value.
    fn response(self, method: Method, interpreter: Interpreter) -> Result<pb::AggregateResponse> {
        let rows = Bytes::copy_from_slice(&self.rows.to_be_bytes());
        let (first, second) = match method {
            Method::RowNum => return Ok(pb::AggregateResponse { first_part: vec![rows], second_part: None }),
            Method::Max | Method::Min => (vec![self.best], None),
            Method::Sum => (vec![self.sum], None),
            Method::Avg => (vec![self.sum], Some(rows)),
            Method::Std => (vec![self.sum, self.squares], Some(rows)),
            Method::Median => (vec![self.sum, self.weights.or_else(|| Some(interpreter.least()))], None),
        };
        let first: Option<Vec<_>> = first.into_iter().map(|number| number.map(Number::write)).collect();
        Ok(match first {
            None => pb::AggregateResponse::default(),
            Some(first_part) => pb::AggregateResponse { first_part, second_part: second },
        })
    }
}
