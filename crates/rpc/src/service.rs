//! Services, which answer calls.

use std::sync::Arc;

use evenkeel_common::thread::run_call;

use crate::call::Call;
use crate::connection::CallBatch;
use crate::responder::Responder;

/// A protobuf service of HBase, such as ClientService.
///
/// [`call`](Service::call) runs on the thread that owns the connection, so it must not block. It
/// answers immediately if the data is in memory. Otherwise it moves the call elsewhere, with
/// [`Responder::detach`] (see [`crate::Executor`]) or with a task on the same thread, and replies
/// from there, in any order.
pub trait Service: Send + Sync + 'static {
    /// The simple name in the ConnectionHeader, e.g. `ClientService`.
    fn name(&self) -> &'static str;

    /// The method names of the .proto file. Calls of other methods are answered without the
    /// service.
    fn methods(&self) -> &'static [&'static str];

    /// Answers a call or passes it on.
    fn call(&self, call: Call, reply: Responder);

    /// Returns the runner of the service's batches on a connection thread. Each thread makes one
    /// when its first connection to the service opens. `None`: calls do not share work, and each
    /// goes to [`Service::call`].
    fn batch_runner(&self) -> Option<Box<dyn BatchRunner>> {
        None
    }
}

/// The part of a service on one connection thread: runs the calls that arrived together, and keeps
/// thread-local state between batches.
pub trait BatchRunner {
    /// Runs the calls of a batch. A call that panics must not affect the others: see [`run_call`].
    fn run(&mut self, calls: &mut CallBatch<'_>);
}

/// Runs each call of a batch separately.
struct UnbatchedRunner(Arc<dyn Service>);

impl BatchRunner for UnbatchedRunner {
    fn run(&mut self, calls: &mut CallBatch<'_>) {
        while let Some((call, reply)) = calls.next_call() {
            run_call(call.method, || self.0.call(call, reply));
        }
    }
}

/// A service with an index of its methods.
pub(crate) struct ServiceEntry {
    pub service: Arc<dyn Service>,
    /// Method names in order, each with its index in `Service::methods`.
    sorted: Vec<(&'static str, usize)>,
}

impl ServiceEntry {
    fn new(service: Arc<dyn Service>) -> Self {
        let mut sorted: Vec<_> = service.methods().iter().enumerate().map(|(i, name)| (*name, i)).collect();
        sorted.sort_unstable();
        ServiceEntry { service, sorted }
    }

    /// Returns a runner of the service's batches for one thread.
    pub fn batch_runner(&self) -> Box<dyn BatchRunner> {
        self.service.batch_runner().unwrap_or_else(|| Box::new(UnbatchedRunner(self.service.clone())))
    }

    /// Returns the method's static name and its index; `None` if the service does not have it.
    #[inline]
    pub fn method(&self, name: &str) -> Option<(&'static str, usize)> {
        let at = self.sorted.binary_search_by(|(known, _)| (*known).cmp(name)).ok()?;
        self.sorted.get(at).copied()
    }
}

/// The services of one server, by name.
pub(crate) struct Services(Vec<Arc<ServiceEntry>>);

impl Services {
    pub fn new(services: Vec<Arc<dyn Service>>) -> Self {
        Services(services.into_iter().map(|service| Arc::new(ServiceEntry::new(service))).collect())
    }

    pub fn by_name(&self, name: &str) -> Option<Arc<ServiceEntry>> {
        self.0.iter().find(|entry| entry.service.name() == name).cloned()
    }
}
