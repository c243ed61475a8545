//! The rows of hbase:quota, which hold quotas and the switch of exceeding them (HBase's
//! `QuotaTableUtil`).
//!
//! | row | `q:s` | `q:s.<name>` |
//! |---|---|---|
//! | `u.<user>` | of the user | of the user on a table, or a namespace (`<name>` ends with `:`) |
//! | `t.<table>` | of the table | |
//! | `n.<namespace>` | of the namespace | |
//! | `r.all` | of every RegionServer | |
//! | `exceedThrottleQuota` | one byte: 0 for off | |
//!
//! A quota is a `Quotas` message behind the four bytes `PBUF`. [`space`] has the cells of the
//! family `u`, which hold the use of space.

pub mod space;

use bytes::Bytes;
use evenkeel_protocol::{from_magic, pb, with_magic};

use crate::descriptor::{ColumnFamilyDescriptor, TableDescriptor};
use crate::error::{HBaseError, Result};
use crate::names::TableName;

/// The family of the quotas.
pub const FAMILY: &[u8] = b"q";
/// The family of the use of space.
pub const USAGE_FAMILY: &[u8] = b"u";
/// The qualifier of a target's own quotas.
pub const SETTINGS: &[u8] = b"s";
/// What precedes the name of a table or a namespace in the qualifier of a user's quota on it.
const SETTINGS_PREFIX: &[u8] = b"s.";
/// The row of the switch that lets requests exceed their quotas.
pub const EXCEED_ROW: &[u8] = b"exceedThrottleQuota";
/// The name that stands for all RegionServers; HBase knows no other.
pub const ALL_SERVERS: &str = "all";

/// Returns hbase:quota.
///
/// # Errors
/// None: the name is legal.
pub fn table_name() -> Result<TableName> {
    "hbase:quota".parse()
}

/// Returns the descriptor that HBase's master uses for hbase:quota.
///
/// # Errors
/// None: the names are legal.
pub fn descriptor() -> Result<TableDescriptor> {
    let family = |name| Ok::<_, HBaseError>(ColumnFamilyDescriptor::new(name)?.with("VERSIONS", "1"));
    Ok(TableDescriptor::new(table_name()?).with_family(family(FAMILY)?).with_family(family(USAGE_FAMILY)?))
}

/// What a quota is for.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum QuotaTarget {
    /// All requests of a user.
    User(String),
    /// A user's requests to a table.
    UserTable(String, TableName),
    /// A user's requests to the tables of a namespace.
    UserNamespace(String, String),
    /// All requests to a table.
    Table(TableName),
    /// All requests to the tables of a namespace.
    Namespace(String),
    /// All requests to a RegionServer, by its name; HBase knows only [`ALL_SERVERS`].
    RegionServer(String),
}

impl QuotaTarget {
    /// Returns the row.
    pub fn row(&self) -> Bytes {
        let (prefix, name) = match self {
            Self::User(user) | Self::UserTable(user, _) | Self::UserNamespace(user, _) => ('u', user.clone()),
            Self::Table(table) => ('t', table.to_string()),
            Self::Namespace(namespace) => ('n', namespace.clone()),
            Self::RegionServer(server) => ('r', server.clone()),
        };
        format!("{prefix}.{name}").into()
    }

    /// Returns the qualifier.
    pub fn qualifier(&self) -> Bytes {
        match self {
            Self::UserTable(_, table) => format!("s.{table}").into(),
            Self::UserNamespace(_, namespace) => format!("s.{namespace}:").into(),
            _ => Bytes::from_static(SETTINGS),
        }
    }

    /// Returns the target of a cell of the family `q`; `None` if there is none, as for
    /// [`EXCEED_ROW`].
    pub fn parse(row: &[u8], qualifier: &[u8]) -> Option<Self> {
        let text = |bytes: &[u8]| String::from_utf8(bytes.to_vec()).ok();
        let (prefix, name) = row.split_at_checked(2)?;
        let name = text(name)?;
        if prefix == b"u."
            && let Some(of) = qualifier.strip_prefix(SETTINGS_PREFIX)
        {
            let of = text(of)?;
            return match of.strip_suffix(':') {
                Some(namespace) => Some(Self::UserNamespace(name, namespace.to_owned())),
                None => Some(Self::UserTable(name, of.parse().ok()?)),
            };
        }
        if qualifier != SETTINGS {
            return None;
        }
        match prefix {
            b"u." => Some(Self::User(name)),
            b"t." => Some(Self::Table(name.parse().ok()?)),
            b"n." => Some(Self::Namespace(name)),
            b"r." => Some(Self::RegionServer(name)),
            _ => None,
        }
    }
}

/// Decodes the value of a cell.
///
/// # Errors
/// `DeserializationException` if it is no quota.
pub fn decode(value: &[u8]) -> Result<pb::Quotas> {
    from_magic(value)
        .map_err(|error| HBaseError::new(crate::ErrorKind::Deserialization, format!("no quota: {error}")))
}

/// Encodes the value of a cell.
pub fn encode(quotas: &pb::Quotas) -> Bytes {
    with_magic(quotas).into()
}

/// Returns the name of a kind of throttle and its limit, for every throttle that is set, in the
/// order in which HBase lists them.
pub fn throttles(throttle: &pb::Throttle) -> Vec<(pb::ThrottleType, &pb::TimedQuota)> {
    use pb::ThrottleType as T;
    let all = [
        (T::RequestNumber, &throttle.req_num),
        (T::RequestSize, &throttle.req_size),
        (T::WriteNumber, &throttle.write_num),
        (T::WriteSize, &throttle.write_size),
        (T::ReadNumber, &throttle.read_num),
        (T::ReadSize, &throttle.read_size),
        (T::RequestCapacityUnit, &throttle.req_capacity_unit),
        (T::ReadCapacityUnit, &throttle.read_capacity_unit),
        (T::WriteCapacityUnit, &throttle.write_capacity_unit),
        (T::AtomicReadSize, &throttle.atomic_read_size),
        (T::AtomicWriteSize, &throttle.atomic_write_size),
        (T::AtomicRequestNumber, &throttle.atomic_req_num),
        (T::RequestHandlerUsageMs, &throttle.req_handler_usage_ms),
    ];
    all.into_iter().filter_map(|(kind, limit)| Some((kind, limit.as_ref()?))).collect()
}

/// Returns the place of a kind of throttle.
pub fn throttle_mut(throttle: &mut pb::Throttle, kind: pb::ThrottleType) -> &mut Option<pb::TimedQuota> {
    use pb::ThrottleType as T;
    match kind {
        T::RequestNumber => &mut throttle.req_num,
        T::RequestSize => &mut throttle.req_size,
        T::WriteNumber => &mut throttle.write_num,
        T::WriteSize => &mut throttle.write_size,
        T::ReadNumber => &mut throttle.read_num,
        T::ReadSize => &mut throttle.read_size,
        T::RequestCapacityUnit => &mut throttle.req_capacity_unit,
        T::WriteCapacityUnit => &mut throttle.write_capacity_unit,
        T::ReadCapacityUnit => &mut throttle.read_capacity_unit,
        T::AtomicReadSize => &mut throttle.atomic_read_size,
        T::AtomicRequestNumber => &mut throttle.atomic_req_num,
        T::AtomicWriteSize => &mut throttle.atomic_write_size,
        T::RequestHandlerUsageMs => &mut throttle.req_handler_usage_ms,
    }
}

/// Returns the milliseconds of a unit of time; `None` for units that no limit may have.
pub fn unit_ms(unit: pb::TimeUnit) -> Option<i64> {
    match unit {
        pb::TimeUnit::Nanoseconds | pb::TimeUnit::Microseconds => None,
        pb::TimeUnit::Milliseconds => Some(1),
        pb::TimeUnit::Seconds => Some(1000),
        pb::TimeUnit::Minutes => Some(60_000),
        pb::TimeUnit::Hours => Some(3_600_000),
        pb::TimeUnit::Days => Some(86_400_000),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rows_and_qualifiers_are_hbases() {
        let table = |name: &str| name.parse::<TableName>().expect("legal");
        let all = [
            (QuotaTarget::User("bob".into()), "u.bob", "s"),
            (QuotaTarget::UserTable("bob".into(), table("ns:t")), "u.bob", "s.ns:t"),
            (QuotaTarget::UserTable("bob".into(), table("t")), "u.bob", "s.t"),
            (QuotaTarget::UserNamespace("bob".into(), "ns".into()), "u.bob", "s.ns:"),
            (QuotaTarget::Table(table("ns:t")), "t.ns:t", "s"),
            (QuotaTarget::Namespace("ns".into()), "n.ns", "s"),
            (QuotaTarget::RegionServer(ALL_SERVERS.into()), "r.all", "s"),
        ];
        for (target, row, qualifier) in all {
            assert_eq!((&target.row()[..], &target.qualifier()[..]), (row.as_bytes(), qualifier.as_bytes()));
            assert_eq!(QuotaTarget::parse(row.as_bytes(), qualifier.as_bytes()), Some(target));
        }
    }

    #[test]
    fn other_cells_have_no_target() {
        let others: [(&[u8], &[u8]); 8] = [
            (EXCEED_ROW, b"s"),
            (b"", b"s"),
            (b"u", b"s"),
            (b"x.y", b"s"),
            (b"t.t", b"s.u"),
            (b"u.bob", b"p"),
            (b"t.\xff", b"s"),
            (b"u.bob", b"s.a:b:c"),
        ];
        for (row, qualifier) in others {
            assert_eq!(QuotaTarget::parse(row, qualifier), None, "{}", row.escape_ascii());
        }
    }

    #[test]
    fn each_kind_of_throttle_has_its_own_place() {
        let mut throttle = pb::Throttle::default();
        for kind in (1..=13).map(|number| pb::ThrottleType::try_from(number).expect("a kind")) {
            assert!(throttles(&throttle).iter().all(|(other, _)| *other != kind));
            *throttle_mut(&mut throttle, kind) = Some(pb::TimedQuota::default());
            assert!(throttles(&throttle).iter().any(|(other, _)| *other == kind), "{kind:?}");
        }
        assert_eq!(throttles(&throttle).len(), 13);
        let quotas = pb::Quotas { throttle: Some(throttle), ..Default::default() };
        assert_eq!(decode(&encode(&quotas)), Ok(quotas));
        assert!(decode(b"nonsense").is_err());
    }
}
