//! Quotas: limits on requests, and on space.

use evenkeel_client::Admin;
use evenkeel_client::admin::{Quota, QuotaFilter, QuotaSettings};
use evenkeel_common::quota::space::SpaceUse;
use evenkeel_common::quota::{ALL_SERVERS, QuotaTarget};
use evenkeel_common::{ServerName, TableName};
use evenkeel_protocol::pb;

use super::Command;
use crate::args::{self, Args};
use crate::error::{CommandResult, RubyError};
use crate::shell::Shell;
use crate::value::{Hash, Value};

pub(super) const COMMANDS: &[Command] = &[
    Command::new(
        "set_quota",
        (1, 1),
        set_quota,
        "Limits the requests of a USER, or to a TABLE, a NAMESPACE or every REGIONSERVER ('all'); USER may be combined\n\
         with TABLE or NAMESPACE. LIMIT is a number of requests (req), of bytes (B, K, M, G, T, P) or of capacity units\n\
         (CU) in each sec, min, hour or day. THROTTLE_TYPE is READ, WRITE, or REQUEST for both. SCOPE is MACHINE, the\n\
         limit of each server, or CLUSTER, that of all servers together. LIMIT => NONE removes limits.\n\n  \
         hbase> set_quota TYPE => THROTTLE, USER => 'u1', LIMIT => '10req/sec'\n  \
         hbase> set_quota TYPE => THROTTLE, THROTTLE_TYPE => WRITE, TABLE => 't1', LIMIT => '10M/sec'\n  \
         hbase> set_quota TYPE => THROTTLE, USER => 'u1', NAMESPACE => 'ns1', LIMIT => '100CU/min'\n  \
         hbase> set_quota TYPE => THROTTLE, REGIONSERVER => 'all', LIMIT => '30000req/sec'\n  \
         hbase> set_quota TYPE => THROTTLE, NAMESPACE => 'ns1', LIMIT => '10req/sec', SCOPE => CLUSTER\n  \
         hbase> set_quota TYPE => THROTTLE, USER => 'u1', LIMIT => NONE\n  \
         hbase> set_quota TYPE => THROTTLE, USER => 'u1', THROTTLE_TYPE => READ_NUMBER, LIMIT => NONE\n\n\
         GLOBAL_BYPASS exempts a user from the limits of tables, namespaces and servers.\n\n  \
         hbase> set_quota USER => 'u1', GLOBAL_BYPASS => true\n\n\
         TYPE => SPACE limits the size of a TABLE or NAMESPACE. POLICY is NO_INSERTS,\n\
         NO_WRITES, NO_WRITES_COMPACTIONS or DISABLE.\n\n  \
         hbase> set_quota TYPE => SPACE, TABLE => 't1', LIMIT => '1G', POLICY => NO_INSERTS\n  \
         hbase> set_quota TYPE => SPACE, TABLE => 't1', LIMIT => NONE",
    ),
    Command::new(
        "list_quotas",
        (0, 1),
        list_quotas,
        "Prints the quotas, or those whose names match regular expressions.\n\n  hbase> list_quotas\n  \
         hbase> list_quotas USER => 'bob.*', TABLE => 't1'\n  hbase> list_quotas NAMESPACE => 'ns.*'",
    ),
    Command::new(
        "list_quota_table_sizes",
        (0, 0),
        list_table_sizes,
        "Prints the sizes of tables by which a server decides about quotas of space.\n\n  hbase> list_quota_table_sizes",
    ),
    Command::new(
        "list_quota_snapshots",
        (0, 1),
        list_quota_snapshots,
        "Prints the use of space of tables with quotas of space, from hbase:quota or from a REGIONSERVER.\n\n  \
         hbase> list_quota_snapshots\n  hbase> list_quota_snapshots({TABLE => 't1'})\n  \
         hbase> list_quota_snapshots({NAMESPACE => 'ns1', REGIONSERVER => 'host,16020,1483482894742'})",
    ),
    Command::new(
        "list_snapshot_sizes",
        (0, 0),
        list_snapshot_sizes,
        "Prints the space that snapshots take beyond their tables, where quotas of space count it.\n\n  \
         hbase> list_snapshot_sizes",
    ),
    Command::new(
        "enable_rpc_throttle",
        (0, 0),
        |shell, _| switch_throttle(shell, true),
        "Switches all throttles on and prints the previous state; false if quotas are not enabled.\n\n  \
         hbase> enable_rpc_throttle",
    ),
    Command::new(
        "disable_rpc_throttle",
        (0, 0),
        |shell, _| switch_throttle(shell, false),
        "Switches all throttles off and prints the previous state; false if quotas are not enabled.\n\n  \
         hbase> disable_rpc_throttle",
    ),
    Command::new(
        "enable_exceed_throttle_quota",
        (0, 0),
        |shell, _| switch_exceed(shell, true),
        "Lets requests exceed the limits of users, tables and namespaces while the limits of the region server, which\n\
         must be set by the second, have free units. Prints the previous state.\n\n  \
         hbase> enable_exceed_throttle_quota",
    ),
    Command::new(
        "disable_exceed_throttle_quota",
        (0, 0),
        |shell, _| switch_exceed(shell, false),
        "Makes all limits apply again and prints the previous state.\n\n  hbase> disable_exceed_throttle_quota",
    ),
];

fn switch_throttle(shell: &mut Shell, on: bool) -> CommandResult {
    let admin = shell.cluster.admin()?;
    let before = shell.wait(admin.switch_rpc_throttle(on))?;
    shell.out.row(&[&format!("Previous rpc throttle state : {before}")])?;
    Ok(Value::Bool(before))
}

fn switch_exceed(shell: &mut Shell, on: bool) -> CommandResult {
    let admin = shell.cluster.admin()?;
    let before = shell.wait(admin.switch_exceed_throttle_quota(on))?;
    shell.out.row(&[&format!("Previous exceed throttle quota enabled : {before}")])?;
    Ok(Value::Bool(before))
}

fn set_quota(shell: &mut Shell, args: Args) -> CommandResult {
    let mut args = args.hash(0)?;
    let admin = shell.cluster.admin()?;
    let Some(kind) = args.take("TYPE") else {
        let bypass = args.take("GLOBAL_BYPASS");
        let bypass = bypass.ok_or_else(|| RubyError::runtime("Expected TYPE argument"))?;
        let user = args.take("USER").ok_or_else(|| RubyError::runtime("Expected USER"))?;
        check_empty(&args)?;
        shell.wait(admin.set_global_bypass(&user.to_text(), args::flag(&bypass)))?;
        return Ok(Value::Nil);
    };
    let removes = args.option("LIMIT").is_some_and(|limit| limit.is_named("NONE"));
    if removes {
        args.take("LIMIT");
    }
    match (kind.to_text().as_str(), removes) {
        ("THROTTLE", true) => unthrottle(shell, &admin, args),
        ("THROTTLE", false) => throttle(shell, &admin, args),
        ("SPACE", true) => {
            let target = space_target(&mut args)?;
            shell.wait(admin.set_space_quota(&target, None))?;
            Ok(Value::Nil)
        }
        ("SPACE", false) => limit_space(shell, &admin, args),
        (other, _) => Err(RubyError::runtime(format!("Invalid TYPE argument. got {other}")).into()),
    }
}

fn check_empty(args: &Hash) -> CommandResult<()> {
    if args.pairs().is_empty() {
        return Ok(());
    }
    let shown = Value::Hash(args.clone()).inspect();
    Err(RubyError::argument(format!("Unexpected arguments: {shown}")).into())
}

fn table_of(value: &Value) -> CommandResult<TableName> {
    args::table_name(value)
}

/// Takes the keys that name what a throttle is for.
fn target(args: &mut Hash) -> CommandResult<QuotaTarget> {
    if let Some(user) = args.take("USER") {
        let user = user.to_text();
        return Ok(match (args.take("TABLE"), args.option("NAMESPACE").is_some()) {
            (Some(table), _) => QuotaTarget::UserTable(user, table_of(&table)?),
            (None, true) => {
                QuotaTarget::UserNamespace(user, args.take("NAMESPACE").unwrap_or_default().to_text())
            }
            (None, false) => QuotaTarget::User(user),
        });
    }
    if let Some(table) = args.take("TABLE") {
        return Ok(QuotaTarget::Table(table_of(&table)?));
    }
    if let Some(namespace) = args.take("NAMESPACE") {
        return Ok(QuotaTarget::Namespace(namespace.to_text()));
    }
    match args.take("REGIONSERVER") {
        // HBase has no quotas of single servers, either.
        Some(_) => Ok(QuotaTarget::RegionServer(ALL_SERVERS.to_owned())),
        None => {
            Err(RubyError::runtime("One of USER, TABLE, NAMESPACE or REGIONSERVER must be specified").into())
        }
    }
}

fn throttle(shell: &mut Shell, admin: &Admin, mut args: Hash) -> CommandResult {
    let kind = args.take("THROTTLE_TYPE").map_or_else(|| "REQUEST".to_owned(), |kind| kind.to_text());
    let limit = args.take("LIMIT").ok_or_else(|| RubyError::argument("Invalid throttle limit syntax"))?;
    let (kind, units, unit) = parse_limit(&limit.to_text(), &kind)?;
    let scope = args.take("SCOPE").map_or_else(|| "MACHINE".to_owned(), |scope| scope.to_text());
    let scope = match scope.to_uppercase().as_str() {
        "CLUSTER" => pb::QuotaScope::Cluster,
        "MACHINE" => pb::QuotaScope::Machine,
        _ => {
            let message = "Invalid throttle scope, must be either CLUSTER or MACHINE";
            return Err(RubyError::argument(message).into());
        }
    };
    let target = target(&mut args)?;
    if matches!(target, QuotaTarget::RegionServer(_)) {
        if scope == pb::QuotaScope::Cluster {
            let message = "Invalid region server throttle scope, must be MACHINE";
            return Err(RubyError::argument(message).into());
        }
    } else {
        check_empty(&args)?;
    }
    let limit = pb::TimedQuota {
        time_unit: unit.into(),
        soft_limit: Some(units),
        scope: Some(scope.into()),
        share: None,
    };
    shell.wait(admin.set_throttle(&target, Some(kind), Some(limit)))?;
    Ok(Value::Nil)
}

fn unthrottle(shell: &mut Shell, admin: &Admin, mut args: Hash) -> CommandResult {
    let target = target(&mut args)?;
    let kind = match args.take("THROTTLE_TYPE") {
        Some(kind) => Some(throttle_type(&kind.to_text())?),
        None => {
            check_empty(&args)?;
            None
        }
    };
    shell.wait(admin.set_throttle(&target, kind, None))?;
    Ok(Value::Nil)
}

fn throttle_type(name: &str) -> CommandResult<pb::ThrottleType> {
    pb::ThrottleType::from_str_name(name).ok_or_else(|| {
        let message = format!("No enum constant org.apache.hadoop.hbase.quotas.ThrottleType.{name}");
        RubyError::argument(message).into()
    })
}

/// Parses `10req/sec`, `5M/min` or `100CU/hour`.
fn parse_limit(limit: &str, kind: &str) -> CommandResult<(pb::ThrottleType, u64, pb::TimeUnit)> {
    let bad = || RubyError::argument("Invalid throttle limit syntax");
    let limit = limit.to_lowercase();
    let (amount, unit) = limit.split_once('/').ok_or_else(bad)?;
    let unit = match unit {
        "sec" => pb::TimeUnit::Seconds,
        "min" => pb::TimeUnit::Minutes,
        "hour" => pb::TimeUnit::Hours,
        "day" => pb::TimeUnit::Days,
        _ => return Err(bad().into()),
    };
    let digits = amount.find(|c: char| !c.is_ascii_digit()).ok_or_else(bad)?;
    let (number, suffix) = amount.split_at(digits);
    let number: u64 = number.parse().map_err(|_| bad())?;
    let (kind, number) = match suffix {
        "req" => (format!("{kind}_NUMBER"), number),
        "cu" => (format!("{kind}_CAPACITY_UNIT"), number),
        size => (format!("{kind}_SIZE"), bytes(number, size).ok_or_else(bad)?),
    };
    Ok((throttle_type(&kind)?, number, unit))
}

/// Returns a size in bytes; `None` for an unknown suffix or a size beyond the range.
fn bytes(number: u64, suffix: &str) -> Option<u64> {
    let shift = match suffix {
        "" | "b" => 0,
        "k" => 10,
        "m" => 20,
        "g" => 30,
        "t" => 40,
        "p" => 50,
        _ => return None,
    };
    number.checked_mul(1 << shift)
}

fn space_target(args: &mut Hash) -> CommandResult<QuotaTarget> {
    match (args.take("TABLE"), args.take("NAMESPACE")) {
        (Some(table), None) => Ok(QuotaTarget::Table(table_of(&table)?)),
        (None, Some(namespace)) => Ok(QuotaTarget::Namespace(namespace.to_text())),
        (Some(_), Some(_)) => {
            Err(RubyError::argument("Only one of TABLE or NAMESPACE can be specified.").into())
        }
        (None, None) => Err(RubyError::argument("One of TABLE or NAMESPACE must be specified.").into()),
    }
}

fn limit_space(shell: &mut Shell, admin: &Admin, mut args: Hash) -> CommandResult {
    let expected = |what: &str| RubyError::argument(format!("Expected a {what} to be provided"));
    let limit = args.take("LIMIT").ok_or_else(|| expected("LIMIT"))?;
    let policy = args.take("POLICY").ok_or_else(|| expected("POLICY"))?.to_text();
    let soft_limit = match &limit {
        Value::Int(number) => u64::try_from(*number).unwrap_or(0),
        text => {
            let text = text.to_text().to_lowercase();
            let digits = text.find(|c: char| !c.is_ascii_digit()).unwrap_or(text.len());
            let (number, suffix) = text.split_at(digits);
            let size = number.parse().ok().and_then(|number| bytes(number, suffix));
            size.ok_or_else(|| RubyError::argument("Invalid size limit syntax"))?
        }
    };
    if soft_limit == 0 {
        return Err(RubyError::argument("Invalid space limit, must be greater than 0").into());
    }
    let policy = pb::SpaceViolationPolicy::from_str_name(&policy).ok_or_else(|| {
        let class = "org.apache.hadoop.hbase.quotas.SpaceViolationPolicy";
        RubyError::argument(format!("No enum constant {class}.{policy}"))
    })?;
    let target = space_target(&mut args)?;
    let quota =
        pb::SpaceQuota { soft_limit: Some(soft_limit), violation_policy: Some(policy.into()), remove: None };
    shell.wait(admin.set_space_quota(&target, Some(quota)))?;
    Ok(Value::Nil)
}

fn list_quotas(shell: &mut Shell, args: Args) -> CommandResult {
    shell.out.header(&["OWNER", "QUOTAS"])?;
    let mut args = args.hash(0)?;
    let limit = args.take("LIMIT").map(|limit| args::number("LIMIT", &limit)).transpose()?;
    let mut text = |key: &str| args.take(key).map(|regex| regex.to_text());
    let filter = QuotaFilter { user: text("USER"), table: text("TABLE"), namespace: text("NAMESPACE") };
    check_empty(&args)?;
    let admin = shell.cluster.admin()?;
    let mut quotas = shell.wait(admin.quotas(&filter))?;
    if let Some(limit) = limit.and_then(|limit| usize::try_from(limit).ok()).filter(|limit| *limit > 0) {
        quotas.truncate(limit);
    }
    for quota in &quotas {
        shell.out.row(&[&owner(&quota.target), &shown(quota)])?;
    }
    shell.out.footer(quotas.len())?;
    Ok(Value::Nil)
}

/// Prints the quotas of a table or namespace without their owner, below a header.
pub(super) fn list_of(shell: &mut Shell, filter: &QuotaFilter, header: &[&str]) -> CommandResult<()> {
    header.iter().try_for_each(|line| shell.out.line(line))?;
    let admin = shell.cluster.admin()?;
    let quotas = shell.wait(admin.quotas(filter))?;
    for quota in &quotas {
        shell.out.row(&[&shown(quota)])?;
    }
    Ok(shell.out.footer(quotas.len())?)
}

fn owner(target: &QuotaTarget) -> String {
    match target {
        QuotaTarget::User(user) => format!("USER => {user}"),
        QuotaTarget::UserTable(user, table) => format!("USER => {user}, TABLE => {table}"),
        QuotaTarget::UserNamespace(user, namespace) => format!("USER => {user}, NAMESPACE => {namespace}"),
        QuotaTarget::Table(table) => format!("TABLE => {table}"),
        QuotaTarget::Namespace(namespace) => format!("NAMESPACE => {namespace}"),
        QuotaTarget::RegionServer(server) => format!("REGIONSERVER => {server}"),
    }
}

/// A quota as `QuotaSettings.toString` prints it.
fn shown(QuotaSettings { target, quota }: &QuotaSettings) -> String {
    match quota {
        Quota::GlobalBypass(bypass) => format!("GLOBAL_BYPASS => {bypass}"),
        Quota::Throttle(kind, limit) => {
            let (amount, unit) = (shown_limit(*kind, limit), unit_name(limit.time_unit()));
            let scope = limit.scope.map(|_| format!(", SCOPE => {}", limit.scope().as_str_name()));
            let kind = kind.as_str_name();
            let scope = scope.unwrap_or_default();
            format!("TYPE => THROTTLE, THROTTLE_TYPE => {kind}, LIMIT => {amount}/{unit}{scope}")
        }
        Quota::Space(space) => {
            let name = match target {
                QuotaTarget::Table(table) => format!(", TABLE => {table}"),
                QuotaTarget::Namespace(namespace) => format!(", NAMESPACE => {namespace}"),
                _ => String::new(),
            };
            let (limit, policy) = (size(space.soft_limit()), space.violation_policy().as_str_name());
            format!("TYPE => SPACE{name}, LIMIT => {limit}, VIOLATION_POLICY => {policy}")
        }
    }
}

fn shown_limit(kind: pb::ThrottleType, limit: &pb::TimedQuota) -> String {
    use pb::ThrottleType as T;
    let Some(units) = limit.soft_limit else {
        return limit.share.map(|share| format!("{share:.2}%")).unwrap_or_default();
    };
    match kind {
        T::RequestNumber | T::WriteNumber | T::ReadNumber | T::AtomicRequestNumber => format!("{units}req"),
        T::RequestSize | T::WriteSize | T::ReadSize | T::AtomicReadSize | T::AtomicWriteSize => size(units),
        T::RequestCapacityUnit | T::ReadCapacityUnit | T::WriteCapacityUnit => format!("{units}CU"),
        T::RequestHandlerUsageMs => format!("{units}ms"),
    }
}

fn unit_name(unit: pb::TimeUnit) -> &'static str {
    match unit {
        pb::TimeUnit::Nanoseconds => "nsec",
        pb::TimeUnit::Microseconds => "usec",
        pb::TimeUnit::Milliseconds => "msec",
        pb::TimeUnit::Seconds => "sec",
        pb::TimeUnit::Minutes => "min",
        pb::TimeUnit::Hours => "hour",
        pb::TimeUnit::Days => "day",
    }
}

/// A size as HBase prints it: two decimals of the largest unit.
fn size(bytes: u64) -> String {
    let units = [(50, 'P'), (40, 'T'), (30, 'G'), (20, 'M'), (10, 'K')];
    let (shift, unit) = units.into_iter().find(|(shift, _)| bytes >= 1 << shift).unwrap_or((0, 'B'));
    format!("{:.2}{unit}", bytes as f64 / (1_u64 << shift) as f64)
}

fn list_table_sizes(shell: &mut Shell, _: Args) -> CommandResult {
    shell.out.header(&["TABLE", "SIZE"])?;
    let admin = shell.cluster.admin()?;
    let sizes = shell.wait(admin.space_quota_table_sizes())?;
    for (table, size) in &sizes {
        shell.out.row(&[&table.to_string(), &size.to_string()])?;
    }
    shell.out.footer(sizes.len())?;
    Ok(Value::Nil)
}

fn list_quota_snapshots(shell: &mut Shell, args: Args) -> CommandResult {
    let args = args.hash(0)?;
    let text = |key: &str| args.option(key).map(Value::to_text);
    let (table, namespace) = (text("TABLE"), text("NAMESPACE"));
    shell.out.header(&["TABLE", "USAGE", "LIMIT", "IN_VIOLATION", "POLICY"])?;
    let admin = shell.cluster.admin()?;
    let uses = match text("REGIONSERVER") {
        Some(server) => {
            let server: ServerName = server.parse()?;
            shell.wait(admin.space_uses_of_server(&server))?
        }
        None => shell.wait(admin.stored_space_uses())?,
    };
    let is_wanted = |name: &TableName| {
        table.as_ref().is_none_or(|table| table == name.qualifier())
            && namespace.as_ref().is_none_or(|namespace| namespace == name.namespace())
    };
    let mut count = 0;
    for (name, SpaceUse { violated, used_bytes, limit_bytes }) in
        uses.into_iter().filter(|(name, _)| is_wanted(name))
    {
        let (used, limit) = (used_bytes.to_string(), limit_bytes.to_string());
        let policy = violated.map_or("None", |policy| policy.as_str_name());
        let in_violation = violated.is_some().to_string();
        shell.out.row(&[&name.to_string(), &used, &limit, &in_violation, policy])?;
        count += 1;
    }
    shell.out.footer(count)?;
    Ok(Value::Nil)
}

fn list_snapshot_sizes(shell: &mut Shell, _: Args) -> CommandResult {
    shell.out.header(&["SNAPSHOT", "SIZE"])?;
    let admin = shell.cluster.admin()?;
    let sizes = shell.wait(admin.snapshot_sizes())?;
    for (_, snapshot, size) in &sizes {
        shell.out.row(&[snapshot, &size.to_string()])?;
    }
    shell.out.footer(sizes.len())?;
    Ok(Value::Nil)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn limits_are_parsed_as_in_hbase() {
        use pb::ThrottleType as T;
        use pb::TimeUnit as U;
        let parse = |limit, kind| parse_limit(limit, kind).ok();
        assert_eq!(parse("10req/sec", "REQUEST"), Some((T::RequestNumber, 10, U::Seconds)));
        assert_eq!(parse("5M/min", "WRITE"), Some((T::WriteSize, 5 << 20, U::Minutes)));
        assert_eq!(parse("7B/day", "READ"), Some((T::ReadSize, 7, U::Days)));
        assert_eq!(parse("100CU/hour", "READ"), Some((T::ReadCapacityUnit, 100, U::Hours)));
        assert_eq!(parse("1req/sec", "ATOMIC_REQUEST"), Some((T::AtomicRequestNumber, 1, U::Seconds)));
        for bad in ["", "10", "10req", "req/sec", "10req/week", "10x/sec", "-1req/sec", "99999999999P/sec"] {
            assert_eq!(parse(bad, "REQUEST"), None, "{bad}");
        }
        assert_eq!(parse("10req/sec", "BOGUS"), None);
    }

    #[test]
    fn quotas_are_printed_as_in_hbase() {
        let limit = |units, unit: pb::TimeUnit, scope: Option<pb::QuotaScope>| pb::TimedQuota {
            time_unit: unit.into(),
            soft_limit: Some(units),
            scope: scope.map(Into::into),
            share: None,
        };
        let settings =
            |quota| QuotaSettings { target: QuotaTarget::Table("ns:t".parse().expect("legal")), quota };
        let throttle = |kind, limit| shown(&settings(Quota::Throttle(kind, limit)));
        assert_eq!(
            throttle(
                pb::ThrottleType::RequestNumber,
                limit(10, pb::TimeUnit::Seconds, Some(pb::QuotaScope::Machine))
            ),
            "TYPE => THROTTLE, THROTTLE_TYPE => REQUEST_NUMBER, LIMIT => 10req/sec, SCOPE => MACHINE"
        );
        assert_eq!(
            throttle(pb::ThrottleType::WriteSize, limit(1536, pb::TimeUnit::Days, None)),
            "TYPE => THROTTLE, THROTTLE_TYPE => WRITE_SIZE, LIMIT => 1.50K/day"
        );
        let space = pb::SpaceQuota {
            soft_limit: Some(1 << 30),
            violation_policy: Some(pb::SpaceViolationPolicy::NoWrites.into()),
            remove: None,
        };
        assert_eq!(
            shown(&settings(Quota::Space(space))),
            "TYPE => SPACE, TABLE => ns:t, LIMIT => 1.00G, VIOLATION_POLICY => NO_WRITES"
        );
        assert_eq!(shown(&settings(Quota::GlobalBypass(true))), "GLOBAL_BYPASS => true");
        assert_eq!([size(0), size(1023), size(5 << 50)], ["0.00B", "1023.00B", "5.00P"]);
    }
}
