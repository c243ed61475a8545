//! [`MethodTable`]: the table of a service's calls.
//!
//! A service with many calls has them in groups. Each group has a file with the functions that
//! answer its calls ([`methods!`](crate::methods)). The table joins the groups, sorted by name.

use std::sync::Arc;

use evenkeel_rpc::{Call, CallClass, DetachedResponder};

/// One row of the table: a call that `S` answers.
pub struct Method<S> {
    /// The RPC's name in its `.proto` file.
    pub name: &'static str,
    /// The class of handlers that run it.
    pub class: CallClass,
    /// Decodes the request and sends the reply.
    pub answer: fn(&Arc<S>, &Call, DetachedResponder),
}

/// A group of rows: `"Name" => function` for a call of the priority handlers, or
/// `waits "Name" => function` for one of the admin handlers. The function takes `&Arc<S>` and the
/// request, and returns the response or the error. The function of `replies "Name" => function`
/// runs on the admin handlers, takes the [`DetachedResponder`], too, and may send the response
/// later from another thread, so that no handler waits.
#[macro_export]
macro_rules! methods {
    (@class) => { evenkeel_rpc::CallClass::Priority };
    (@class waits) => { evenkeel_rpc::CallClass::Admin };
    (@class replies) => { evenkeel_rpc::CallClass::Admin };
    (@answer replies, $answer:expr) => {
        |service, call, reply| match call.decode() {
            Ok(request) => $answer(service, request, reply),
            Err(error) => evenkeel_rpc::Respond::send_error(reply, &error),
        }
    };
    (@answer $($class:ident)?, $answer:expr) => {
        |service, call, reply| {
            let response = call.decode().and_then(|request| $answer(service, request));
            evenkeel_rpc::Respond::send_result(reply, response);
        }
    };
    ($($($class:ident)? $name:literal => $answer:expr),* $(,)?) => {
        &[$($crate::services::method_table::Method {
            name: $name,
            class: $crate::methods!(@class $($class)?),
            answer: $crate::methods!(@answer $($class)?, $answer),
        }),*]
    };
}

/// All calls of a service.
pub struct MethodTable<S: 'static> {
    /// Sorted by name.
    methods: Vec<&'static Method<S>>,
    names: Vec<&'static str>,
}

impl<S> MethodTable<S> {
    /// Creates the table from groups.
    ///
    /// # Panics
    /// If a call is in two groups.
    pub fn new(groups: &[&'static [Method<S>]]) -> Self {
        let mut methods: Vec<_> = groups.iter().copied().flatten().collect();
        methods.sort_by_key(|method| method.name);
        let names: Vec<_> = methods.iter().map(|method| method.name).collect();
        assert!(names.is_sorted_by(|a, b| a < b), "a call is in two groups: {names:?}");
        Self { methods, names }
    }

    /// Returns the names of all calls; the RPC server rejects all others.
    pub fn names(&self) -> &[&'static str] {
        &self.names
    }

    /// Returns the row of a call.
    pub fn find(&self, name: &str) -> Option<&'static Method<S>> {
        let at = self.names.binary_search(&name).ok()?;
        self.methods.get(at).copied()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const fn row(name: &'static str) -> Method<()> {
        Method { name, class: CallClass::Priority, answer: |_, _, _| {} }
    }

    static FIRST: [Method<()>; 2] = [row("b"), row("d")];
    static SECOND: [Method<()>; 2] = [row("c"), row("a")];

    #[test]
    fn each_call_is_found_by_its_name() {
        let table = MethodTable::new(&[&FIRST, &SECOND]);
        assert_eq!(table.names(), ["a", "b", "c", "d"]);
        for name in table.names() {
            assert_eq!(table.find(name).expect("there").name, *name);
        }
        assert!(table.find("e").is_none());
    }

    #[test]
    #[should_panic(expected = "a call is in two groups")]
    fn a_call_in_two_groups_is_refused() {
        MethodTable::new(&[&FIRST, &SECOND, &FIRST]);
    }
}
