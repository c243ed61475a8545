//! SetQuota: what a request is for, and what it makes of the present quotas (HBase's
//! `GlobalQuotaSettingsImpl`).

use evenkeel_common::quota::{self, QuotaTarget};
use evenkeel_common::{ErrorKind, HBaseError, Result, TableName};
use evenkeel_protocol::pb;

/// `DoNotRetryIOException` around an `UnsupportedOperationException`, as Java prints it.
pub(super) fn unsupported(what: &str) -> HBaseError {
    HBaseError::do_not_retry(format!("java.lang.UnsupportedOperationException: {what}"))
}

/// An unchecked exception of HBase.
fn illegal(what: &str) -> HBaseError {
    HBaseError::new(ErrorKind::IllegalArgument, what)
}

/// Returns what a request is for.
///
/// # Errors
/// `DoNotRetryIOException` if it is for nothing; `IOException` for an illegal name of a table.
pub(super) fn target_of(request: &pb::SetQuotaRequest) -> Result<QuotaTarget> {
    let table = request.table_name.as_ref().map(TableName::try_from).transpose();
    let table = table.map_err(|error| illegal(error.message()))?;
    let pb::SetQuotaRequest { user_name, namespace, region_server, .. } = request;
    match (user_name.clone(), table, namespace.clone(), region_server.clone()) {
        (Some(user), Some(table), ..) => Ok(QuotaTarget::UserTable(user, table)),
        (Some(user), None, Some(namespace), _) => Ok(QuotaTarget::UserNamespace(user, namespace)),
        (Some(user), ..) => Ok(QuotaTarget::User(user)),
        (None, Some(table), ..) => Ok(QuotaTarget::Table(table)),
        (None, None, Some(namespace), _) => Ok(QuotaTarget::Namespace(namespace)),
        (None, None, None, Some(server)) => Ok(QuotaTarget::RegionServer(server)),
        (None, None, None, None) => {
            Err(unsupported("a user, a table, a namespace or region server must be specified"))
        }
    }
}

/// Merges a request into the quotas of its target. `None` if no quota is left.
///
/// # Errors
/// `DoNotRetryIOException` or `IOException` if the request is invalid.
pub(super) fn merge(
    present: Option<pb::Quotas>,
    request: &pb::SetQuotaRequest,
) -> Result<Option<pb::Quotas>> {
    let kinds = [request.bypass_globals.is_some(), request.space_limit.is_some(), request.throttle.is_some()];
    match kinds.iter().filter(|is_set| **is_set).count() {
        0 => return Err(illegal("Unhandled SetRequestRequest state")),
        1 => {}
        _ => return Err(illegal("SetQuotaRequest has multiple limits")),
    }
    let mut quotas = present.unwrap_or_default();
    if let Some(bypass) = request.bypass_globals {
        quotas.bypass_globals = Some(bypass);
    }
    if let Some(space) = &request.space_limit {
        quotas.space = merge_space(request, space)?;
    }
    if let Some(change) = &request.throttle {
        quotas.throttle = merge_throttle(quotas.throttle.take(), change)?;
    }
    let is_empty = quotas.throttle.is_none() && quotas.space.is_none() && quotas.bypass_globals.is_none();
    Ok((!is_empty).then_some(quotas))
}

/// Merges a change of a throttle: without a kind it removes all limits, without a limit it removes
/// that of its kind.
fn merge_throttle(
    present: Option<pb::Throttle>,
    change: &pb::ThrottleRequest,
) -> Result<Option<pb::Throttle>> {
    let Some(kind) = change.r#type else { return Ok(None) };
    let kind = pb::ThrottleType::try_from(kind)
        .map_err(|_| unsupported(&format!("the type of throttle {kind} is unknown")))?;
    let mut throttle = present.unwrap_or_default();
    if let Some(limit) = &change.timed_quota {
        check_limit(limit)?;
    }
    *quota::throttle_mut(&mut throttle, kind) = change.timed_quota;
    Ok((!quota::throttles(&throttle).is_empty()).then_some(throttle))
}

/// Checks a change of a quota of space, and returns the new quota; `None` removes it.
fn merge_space(
    request: &pb::SetQuotaRequest,
    change: &pb::SpaceLimitRequest,
) -> Result<Option<pb::SpaceQuota>> {
    let space = change.quota.as_ref();
    let space = space.ok_or_else(|| illegal("SpaceLimitRequest is missing the expected SpaceQuota."))?;
    if request.table_name.is_some() == request.namespace.is_some() {
        return Err(illegal("Can only construct SpaceLimitSettings for a table or namespace."));
    }
    let checked = match space.remove() {
        true => None,
        false => Some(check_space(space)?),
    };
    match request.user_name.is_some() {
        true => Err(illegal("Mismatched user names on settings to merge")),
        false => Ok(checked),
    }
}

fn check_space(space: &pb::SpaceQuota) -> Result<pb::SpaceQuota> {
    let limit = space.soft_limit;
    let limit = limit.ok_or_else(|| illegal("Cannot handle SpaceQuota without a soft limit"))?;
    let Some(policy) = space.violation_policy else {
        return Err(illegal("Cannot handle SpaceQuota without a violation policy"));
    };
    let policy = pb::SpaceViolationPolicy::try_from(policy)
        .map_err(|_| illegal(&format!("The violation policy {policy} is unknown.")))?;
    if i64::try_from(limit).is_err() {
        return Err(illegal("Size limit must be a non-negative value."));
    }
    Ok(pb::SpaceQuota { soft_limit: Some(limit), violation_policy: Some(policy.into()), remove: None })
}

fn check_limit(limit: &pb::TimedQuota) -> Result<()> {
    // HBase compares it as a signed number.
    let units = limit.soft_limit();
    if units < 1 || i64::try_from(units).is_err() {
        return Err(unsupported(&format!("The throttle limit must be greater then 0, got {}", units as i64)));
    }
    match quota::unit_ms(limit.time_unit()) {
        Some(_) => Ok(()),
        // HBase stores it, and its RegionServers can read no quota then.
        None => Err(unsupported(&format!("Unsupported {} TimeUnit.", limit.time_unit().as_str_name()))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn limit(units: u64) -> pb::TimedQuota {
        pb::TimedQuota {
            time_unit: pb::TimeUnit::Seconds.into(),
            soft_limit: Some(units),
            ..Default::default()
        }
    }

    fn throttle(kind: Option<pb::ThrottleType>, limit: Option<pb::TimedQuota>) -> pb::SetQuotaRequest {
        let throttle = pb::ThrottleRequest { r#type: kind.map(Into::into), timed_quota: limit };
        pb::SetQuotaRequest { throttle: Some(throttle), ..Default::default() }
    }

    #[test]
    fn each_combination_of_names_is_a_target() {
        let request =
            |user: Option<&str>, table: Option<&str>, namespace: Option<&str>, server: Option<&str>| {
                let table = table.map(|name| name.parse::<TableName>().expect("legal"));
                let request = pb::SetQuotaRequest {
                    user_name: user.map(str::to_owned),
                    table_name: table.as_ref().map(Into::into),
                    namespace: namespace.map(str::to_owned),
                    region_server: server.map(str::to_owned),
                    ..Default::default()
                };
                target_of(&request).map(|target| format!("{target:?}"))
            };
        let is =
            |target: Result<String>, kind: &str| assert!(target.is_ok_and(|t| t.starts_with(kind)), "{kind}");
        is(request(Some("u"), Some("t"), Some("n"), None), "UserTable(");
        is(request(Some("u"), None, Some("n"), None), "UserNamespace(");
        is(request(Some("u"), None, None, Some("r")), "User(");
        is(request(None, Some("t"), Some("n"), None), "Table(");
        is(request(None, None, Some("n"), Some("r")), "Namespace(");
        is(request(None, None, None, Some("all")), "RegionServer(");
        let error = request(None, None, None, None).expect_err("no target");
        assert_eq!(
            error.message(),
            "java.lang.UnsupportedOperationException: \
             a user, a table, a namespace or region server must be specified"
        );
    }

    #[test]
    fn limits_are_added_replaced_and_removed_one_by_one() {
        use pb::ThrottleType::{ReadNumber, WriteSize};
        let set = |present, kind, units| {
            merge(present, &throttle(Some(kind), Some(limit(units)))).expect("valid").expect("set")
        };
        let of = |quotas: &pb::Quotas| {
            let throttle = quotas.throttle.expect("set");
            quota::throttles(&throttle)
                .iter()
                .map(|(kind, limit)| (*kind, limit.soft_limit()))
                .collect::<Vec<_>>()
        };
        let quotas = set(Some(set(None, ReadNumber, 1)), WriteSize, 2);
        assert_eq!(of(&quotas), [(WriteSize, 2), (ReadNumber, 1)]);
        assert_eq!(of(&set(Some(quotas), ReadNumber, 9)), [(WriteSize, 2), (ReadNumber, 9)]);
        let one = merge(Some(quotas), &throttle(Some(ReadNumber), None)).expect("valid");
        assert_eq!(of(one.as_ref().expect("set")), [(WriteSize, 2)]);
        assert_eq!(merge(one, &throttle(Some(WriteSize), None)), Ok(None));
        assert_eq!(merge(Some(quotas), &throttle(None, None)), Ok(None));
        assert_eq!(merge(None, &throttle(Some(ReadNumber), None)), Ok(None));
    }

    #[test]
    fn quotas_of_different_kinds_stay_beside_each_other() {
        let bypass = |on| pb::SetQuotaRequest { bypass_globals: Some(on), ..Default::default() };
        let quotas = merge(None, &throttle(Some(pb::ThrottleType::ReadSize), Some(limit(1)))).expect("valid");
        let quotas = merge(quotas, &bypass(true)).expect("valid").expect("set");
        assert!(quotas.bypass_globals() && quotas.throttle.is_some());
        let left = merge(Some(quotas), &throttle(None, None)).expect("valid").expect("it bypasses");
        assert_eq!(left, pb::Quotas { bypass_globals: Some(true), ..Default::default() });
        // As in HBase, a quota that bypasses nothing is kept.
        assert!(merge(Some(left), &bypass(false)).expect("valid").is_some());
    }

    #[test]
    fn requests_that_hbase_rejects_are_rejected() {
        use pb::ThrottleType::ReadNumber;
        let message = |request| merge(None, &request).expect_err("rejected").message().to_owned();
        let nothing =
            "java.lang.UnsupportedOperationException: The throttle limit must be greater then 0, got 0";
        assert_eq!(message(throttle(Some(ReadNumber), Some(limit(0)))), nothing);
        assert!(message(throttle(Some(ReadNumber), Some(limit(u64::MAX)))).ends_with("got -1"));
        let odd = pb::TimedQuota { time_unit: pb::TimeUnit::Nanoseconds.into(), ..limit(1) };
        assert!(
            message(throttle(Some(ReadNumber), Some(odd))).ends_with("Unsupported NANOSECONDS TimeUnit.")
        );
        assert_eq!(message(pb::SetQuotaRequest::default()), "Unhandled SetRequestRequest state");
        let both = pb::SetQuotaRequest { bypass_globals: Some(true), ..throttle(None, None) };
        assert_eq!(message(both), "SetQuotaRequest has multiple limits");
    }

    #[test]
    fn quotas_of_space_are_for_a_table_or_a_namespace() {
        let table = |name: &str| pb::TableName::from(&name.parse::<TableName>().expect("legal"));
        let space = |quota| pb::SetQuotaRequest {
            table_name: Some(table("t")),
            space_limit: Some(pb::SpaceLimitRequest { quota }),
            ..Default::default()
        };
        let message = |request| merge(None, &request).expect_err("rejected").message().to_owned();
        assert_eq!(message(space(None)), "SpaceLimitRequest is missing the expected SpaceQuota.");
        let quota = |limit, policy: Option<pb::SpaceViolationPolicy>| pb::SpaceQuota {
            soft_limit: limit,
            violation_policy: policy.map(Into::into),
            remove: None,
        };
        let policy = Some(pb::SpaceViolationPolicy::NoInserts);
        assert_eq!(
            message(space(Some(quota(None, policy)))),
            "Cannot handle SpaceQuota without a soft limit"
        );
        assert_eq!(
            message(space(Some(quota(Some(1), None)))),
            "Cannot handle SpaceQuota without a violation policy"
        );
        let unknown = pb::SpaceQuota { soft_limit: Some(1), violation_policy: Some(99), remove: None };
        assert_eq!(message(space(Some(unknown))), "The violation policy 99 is unknown.");
        assert_eq!(
            message(space(Some(quota(Some(u64::MAX), policy)))),
            "Size limit must be a non-negative value."
        );
        let valid = quota(Some(0), policy);
        for (table_name, namespace) in [(None, None), (Some(table("t")), Some("n".to_owned()))] {
            let request = pb::SetQuotaRequest { table_name, namespace, ..space(Some(valid)) };
            assert_eq!(message(request), "Can only construct SpaceLimitSettings for a table or namespace.");
        }
        let of_user = pb::SetQuotaRequest { user_name: Some("bob".into()), ..space(Some(valid)) };
        assert_eq!(message(of_user), "Mismatched user names on settings to merge");

        let set = merge(None, &space(Some(valid))).expect("valid").expect("set");
        assert_eq!(set, pb::Quotas { space: Some(valid), ..Default::default() });
        let set =
            merge(Some(set), &throttle(Some(pb::ThrottleType::ReadSize), Some(limit(1)))).expect("valid");
        assert!(set.is_some_and(|set| set.space == Some(valid) && set.throttle.is_some()));
        let remove = pb::SpaceQuota { remove: Some(true), ..Default::default() };
        let left = merge(set, &space(Some(remove))).expect("valid").expect("the throttle");
        assert!(left.space.is_none() && left.throttle.is_some());
        assert_eq!(merge(None, &space(Some(remove))), Ok(None));
    }
}
