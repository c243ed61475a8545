//! Services: what answers calls.

use std::sync::Arc;

use crate::call::Call;
use crate::responder::Responder;

/// A protobuf service of HBase, such as ClientService.
///
/// [`call`](Service::call) runs on the thread that owns the connection, so it must not block: what is in memory is
/// answered at once; anything else is moved elsewhere with [`Responder::detach`] (see [`crate::Executor`]) or with a
/// task on the same thread, and answered from there, in any order.
pub trait Service: Send + Sync + 'static {
    /// The simple name clients put into ConnectionHeader, e.g. `ClientService`.
    fn name(&self) -> &'static str;

    /// The methods' names as in the .proto file. Other names are answered for the service, not passed to it.
    fn methods(&self) -> &'static [&'static str];

    /// Answers a call now or hands it on.
    fn call(&self, call: Call, reply: Responder);

    /// Runs calls that came in together, on their connection's thread: `calls` passes each to [`Service::call`]. For what is
    /// better done once than for each of them.
    fn turn(&self, calls: &mut dyn FnMut()) {
        calls();
    }
}

/// A service with an index of its methods.
pub(crate) struct ServiceEntry {
    pub service: Arc<dyn Service>,
    /// Method names in order, each with its place in `Service::methods`.
    sorted: Vec<(&'static str, usize)>,
}

impl ServiceEntry {
    fn new(service: Arc<dyn Service>) -> Self {
        let mut sorted: Vec<_> = service.methods().iter().enumerate().map(|(i, name)| (*name, i)).collect();
        sorted.sort_unstable();
        ServiceEntry { service, sorted }
    }

    /// The method's own name and its place; `None` for a method the service has not.
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
