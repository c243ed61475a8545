//! [`Record`]: the metrics of a source, in the model of Hadoop's metrics2.
//!
//! A record is a set of metrics that belong together, with tags that identify their subject. HBase
//! shows a record as one bean of `/jmx` and as one prefix of names in `/prometheus`. So a record
//! has both names: [`Record::bean`] and [`Record::name`], which differ only for RPC.
//!
//! The Java platform has further beans, such as `java.lang:type=Runtime`, which tools read from
//! every Java server. A record can also be such a bean ([`Origin::Platform`]); only `/jmx` shows
//! it.
//!
//! A server with 10,000 regions has 300,000 metrics of regions. An [`Aggregate`] has the names of
//! such metrics once, and no text for each of them.

use std::borrow::Cow;

use evenkeel_common::length;

use crate::histogram::{HistogramSnapshot, Interval, TIME_UNITS_PER_MS};

/// The value of a metric.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Value {
    /// A count since the start, which never decreases.
    Counter(u64),
    /// A current size or number of things.
    Gauge(i64),
    /// A current ratio, rate or mean.
    Real(f64),
}

impl Value {
    /// A size or a number of things. A value that does not fit into an `i64` is shown as its
    /// maximum.
    pub fn gauge(value: u64) -> Self {
        Self::Gauge(i64::try_from(value).unwrap_or(i64::MAX))
    }
}

/// One metric of a record.
#[derive(Clone, Debug, PartialEq)]
pub struct Metric {
    /// The name in HBase's spelling, `readRequestCount`.
    pub name: Cow<'static, str>,
    /// What it counts, as one line without a full stop.
    pub description: Cow<'static, str>,
    /// The value when the source was read.
    pub value: Value,
}

/// The same metrics of many parts of the server, such as the regions: an aggregate source of HBase,
/// without a bean for each part.
#[derive(Clone, Debug, PartialEq)]
pub struct Aggregate {
    /// The metrics of each part: the end of their names, and their descriptions.
    metrics: &'static [(&'static str, &'static str)],
    /// The beginnings of the names of each part's metrics.
    prefixes: Vec<String>,
    /// The values of the first part, then those of the next one.
    values: Vec<Value>,
}

impl Aggregate {
    /// Creates an aggregate without parts. Names must be unique.
    pub fn new(metrics: &'static [(&'static str, &'static str)]) -> Self {
        Self { metrics, prefixes: Vec::new(), values: Vec::new() }
    }

    /// Reserves memory for more parts.
    pub fn reserve(&mut self, parts: usize) {
        self.prefixes.reserve(parts);
        self.values.reserve(parts * self.metrics.len());
    }

    /// Adds a part, whose prefix must be unique, with the values of its metrics in their order.
    ///
    /// # Panics
    /// If the number of values is not that of the metrics.
    pub fn add(&mut self, prefix: String, values: &[Value]) {
        assert_eq!(values.len(), self.metrics.len(), "the metrics of {prefix}");
        self.prefixes.push(prefix);
        self.values.extend_from_slice(values);
    }

    /// Returns the names of its metrics, without prefixes, and their descriptions.
    pub fn metrics(&self) -> &'static [(&'static str, &'static str)] {
        self.metrics
    }

    /// Returns the values of a part by its number.
    pub fn part(&self, number: usize) -> Option<&[Value]> {
        self.values.chunks_exact(self.metrics.len().max(1)).nth(number)
    }

    /// Returns about how many bytes of memory it takes.
    pub fn bytes(&self) -> usize {
        let prefixes: usize = self.prefixes.iter().map(|prefix| size_of::<String>() + prefix.len()).sum();
        prefixes + size_of_val(&*self.values)
    }

    /// Returns the parts: their prefixes, and the values of their metrics.
    pub fn parts(&self) -> impl Iterator<Item = (&str, &[Value])> {
        self.parts_from(0)
    }

    /// Returns the parts from the one with this number on.
    pub fn parts_from(&self, number: usize) -> impl Iterator<Item = (&str, &[Value])> {
        let of_part = self.metrics.len().max(1);
        let prefixes = self.prefixes.get(number..).unwrap_or_default();
        let values = self.values.get(number.saturating_mul(of_part)..).unwrap_or_default();
        prefixes.iter().map(String::as_str).zip(values.chunks_exact(of_part))
    }
}

/// One metric of a record or of its aggregate.
#[derive(Clone, Debug, PartialEq)]
pub struct NamedValue<'a> {
    /// The beginning of the name in HBase's spelling: the prefix of a part, or empty.
    pub prefix: &'a str,
    /// The rest of it.
    pub rest: &'a str,
    /// The description; may be empty.
    pub description: &'a str,
    /// The value.
    pub value: Value,
}

impl<'a> NamedValue<'a> {
    /// Returns the whole name.
    pub fn name(&self) -> Cow<'a, str> {
        match self.prefix {
            "" => Cow::Borrowed(self.rest),
            prefix => Cow::Owned([prefix, self.rest].concat()),
        }
    }
}

/// The part of a Java server that shows a record, which decides its name in `/jmx`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Origin {
    /// metrics2: a bean of the domain `Hadoop`, with the tags of every record.
    #[default]
    Metrics2,
    /// The Java platform. Tags and metrics are attributes by their bare names; adjacent metrics
    /// named `a.x` and `a.y` are the members of an attribute `a`.
    Platform {
        /// The domain of the bean's name: `java.lang`.
        domain: &'static str,
        /// The class of the bean, which `/jmx` shows as `modelerType`.
        class: &'static str,
    },
}

/// Prefix of every ObjectName of HBase's metrics.
const HBASE_BEANS: &str = "Hadoop:service=HBase,";

/// The metrics of a source; see the module's documentation.
#[derive(Clone, Debug, PartialEq)]
pub struct Record {
    /// The part of a Java server that shows it.
    pub origin: Origin,
    /// The name that prefixes its metrics in `/prometheus`: `Server`.
    pub name: Cow<'static, str>,
    /// The kind of process or part: `regionserver`, `master` or `jvm`. Shown as `tag.Context`.
    pub context: &'static str,
    /// The rest of the bean's name after `Hadoop:service=HBase,`, or after the platform's domain:
    /// `name=RegionServer,sub=Server`.
    pub bean: Cow<'static, str>,
    /// Further tags, in HBase's spelling, without those of every record.
    pub tags: Vec<(Cow<'static, str>, String)>,
    /// The metrics, with unique names.
    pub metrics: Vec<Metric>,
    /// Further metrics, with other names.
    pub aggregate: Option<Aggregate>,
}

/// Percentiles of HBase's histograms: the name's suffix and the quantile.
const PERCENTILES: [(&str, f64); 8] = [
    ("_25th_percentile", 0.25),
    ("_median", 0.5),
    ("_75th_percentile", 0.75),
    ("_90th_percentile", 0.9),
    ("_95th_percentile", 0.95),
    ("_98th_percentile", 0.98),
    ("_99th_percentile", 0.99),
    ("_99.9th_percentile", 0.999),
];

/// Upper bounds of the ranges of a MutableTimeHistogram, in milliseconds.
const TIME_RANGES_MS: [u64; 14] =
    [1, 3, 10, 30, 100, 300, 1_000, 3_000, 10_000, 30_000, 60_000, 120_000, 300_000, 600_000];
/// Upper bounds of the ranges of a MutableSizeHistogram, in bytes.
const SIZE_RANGES: [u64; 8] = [10, 100, 1_000, 10_000, 100_000, 1_000_000, 10_000_000, 100_000_000];

/// The ranges that HBase adds to a histogram, and the unit of its values.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ranges {
    /// MutableHistogram: none. Values are shown as they were recorded.
    None,
    /// MutableTimeHistogram: values were recorded by
    /// [`Histogram::record_time`](crate::Histogram::record_time) and are shown in milliseconds.
    Time,
    /// A MutableHistogram of times: in milliseconds, without ranges.
    Millis,
    /// MutableSizeHistogram: values are bytes or counts.
    Size,
}

impl Record {
    /// A record without tags and metrics.
    pub fn new(
        name: impl Into<Cow<'static, str>>,
        context: &'static str,
        bean: impl Into<Cow<'static, str>>,
    ) -> Self {
        let (name, bean) = (name.into(), bean.into());
        let (tags, metrics) = (Vec::new(), Vec::new());
        Self { origin: Origin::Metrics2, name, context, bean, tags, metrics, aggregate: None }
    }

    /// A bean of the Java platform without attributes: `java.lang`, `type=Runtime` and the class.
    pub fn platform(domain: &'static str, bean: &'static str, class: &'static str) -> Self {
        Self { origin: Origin::Platform { domain, class }, ..Self::new(bean, "jvm", bean) }
    }

    /// Returns the ObjectName of its bean.
    pub fn object_name(&self) -> String {
        match self.origin {
            Origin::Metrics2 => format!("{HBASE_BEANS}{}", self.bean),
            Origin::Platform { domain, .. } => format!("{domain}:{}", self.bean),
        }
    }

    /// Returns the `modelerType` in `/jmx`: for HBase's beans the name without its first key.
    pub fn modeler_type(&self) -> &str {
        match self.origin {
            Origin::Metrics2 => self.bean.strip_prefix("name=").unwrap_or(&self.bean),
            Origin::Platform { class, .. } => class,
        }
    }

    /// Returns the number of all metrics.
    pub fn metric_count(&self) -> usize {
        self.metrics.len() + self.aggregate.as_ref().map_or(0, |aggregate| aggregate.values.len())
    }

    /// Returns all metrics, with those of the aggregate.
    pub fn all_metrics(&self) -> impl Iterator<Item = NamedValue<'_>> {
        let own = self.metrics.iter().map(|metric| NamedValue {
            prefix: "",
            rest: &metric.name,
            description: &metric.description,
            value: metric.value,
        });
        own.chain(self.aggregate.iter().flat_map(|aggregate| {
            aggregate.parts().flat_map(|(prefix, values)| {
                aggregate.metrics.iter().zip(values).map(move |((rest, description), value)| NamedValue {
                    prefix,
                    rest,
                    description,
                    value: *value,
                })
            })
        }))
    }

    /// Returns true for a record of metrics2, which every sink shows.
    pub fn is_metrics2(&self) -> bool {
        self.origin == Origin::Metrics2
    }

    /// Adds a tag.
    pub fn tag(&mut self, name: impl Into<Cow<'static, str>>, value: impl Into<String>) -> &mut Self {
        self.tags.push((name.into(), value.into()));
        self
    }

    /// Adds a counter since the start.
    pub fn counter(
        &mut self,
        name: impl Into<Cow<'static, str>>,
        description: impl Into<Cow<'static, str>>,
        value: u64,
    ) -> &mut Self {
        self.add(name, description, Value::Counter(value))
    }

    /// Adds a size or a number of things, as [`Value::gauge`].
    pub fn gauge(
        &mut self,
        name: impl Into<Cow<'static, str>>,
        description: impl Into<Cow<'static, str>>,
        value: u64,
    ) -> &mut Self {
        self.add(name, description, Value::gauge(value))
    }

    /// Adds a ratio, a rate or a mean.
    pub fn real(
        &mut self,
        name: impl Into<Cow<'static, str>>,
        description: impl Into<Cow<'static, str>>,
        value: f64,
    ) -> &mut Self {
        self.add(name, description, Value::Real(value))
    }

    fn add(
        &mut self,
        name: impl Into<Cow<'static, str>>,
        description: impl Into<Cow<'static, str>>,
        value: Value,
    ) -> &mut Self {
        self.metrics.push(Metric { name: name.into(), description: description.into(), value });
        self
    }

    /// Adds the metrics that HBase makes of a histogram: the count of all values, and the
    /// distribution of the values of an interval. As in HBase (MutableHistogram), names begin with
    /// an upper case letter regardless of the case of `name` (`queueCallTime` becomes
    /// `QueueCallTime_num_ops`), and descriptions with a lower case one.
    pub fn histogram(&mut self, name: &str, description: &str, ranges: Ranges, of: &Interval) -> &mut Self {
        let unit = match ranges {
            Ranges::Time | Ranges::Millis => TIME_UNITS_PER_MS,
            Ranges::None | Ranges::Size => 1,
        };
        let name = &*with_first(name, char::to_ascii_uppercase);
        let description = with_first(description, char::to_ascii_lowercase);
        let text = || description.clone();
        self.counter(format!("{name}_num_ops"), text(), of.total);
        let values = &of.values;
        self.gauge(format!("{name}_min"), text(), values.min() / unit);
        self.gauge(format!("{name}_max"), text(), values.max() / unit);
        self.gauge(format!("{name}_mean"), text(), length::whole((values.mean() / unit as f64).round()));
        for (suffix, part) in PERCENTILES {
            self.gauge(format!("{name}{suffix}"), text(), values.quantile(part) / unit);
        }
        match ranges {
            Ranges::Time => self.ranges(name, "TimeRangeCount", &TIME_RANGES_MS, unit, values),
            Ranges::Size => self.ranges(name, "SizeRangeCount", &SIZE_RANGES, unit, values),
            Ranges::None | Ranges::Millis => {}
        }
        self
    }

    /// Adds the count of values in each nonempty range.
    fn ranges(&mut self, name: &str, kind: &str, ends: &[u64], unit: u64, values: &HistogramSnapshot) {
        let mut low = 0;
        let mut below = 0;
        for &end in ends {
            let upto = values.count_upto(end * unit);
            if upto > below {
                self.counter(format!("{name}_{kind}_{low}-{end}"), "", upto - below);
            }
            (low, below) = (end, upto);
        }
        if values.count() > below {
            self.counter(format!("{name}_{kind}_{low}-inf"), "", values.count() - below);
        }
    }
}

/// Returns the text with its first letter changed, if it is an ASCII letter.
fn with_first(text: &str, change: fn(&char) -> char) -> String {
    let mut chars = text.chars();
    chars.next().map(|first| change(&first)).into_iter().chain(chars).collect()
}
