//! [`Cluster`]: the connection, opened on first use, and waits that Ctrl-C interrupts.
//!
//! The shell is one thread with a single-threaded runtime. Sockets make progress only while a
//! command waits; that suffices, because the client checks a socket before it uses it. A separate
//! thread, started with the first interactive wait, handles Ctrl-C, which ends the command and not
//! the shell.

use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use evenkeel_client::{Admin, Connection, Error as ClientError, Table};
use evenkeel_common::{Configuration, TableName};
use tokio::runtime::{Builder, Runtime};
use tokio::sync::Notify;

use crate::error::{CommandError, CommandResult, Flow, RubyError};

/// The maximum time to connect to the cluster, regardless of the settings.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(60);

/// The default number of retries, as in the stock shell (`hbase.client.retries.number` in its
/// `hbase.rb`).
const RETRIES: &str = "7";

/// A cluster, connected on first use.
pub struct Cluster {
    runtime: Runtime,
    conf: Configuration,
    connection: Option<Connection>,
    interrupt: Option<Arc<Interrupt>>,
}

/// Set if Ctrl-C was pressed.
#[derive(Default)]
struct Interrupt {
    pressed: AtomicBool,
    wake: Notify,
}

impl Cluster {
    /// A cluster by its settings. Makes no call.
    ///
    /// # Errors
    /// If the runtime cannot be created.
    pub fn new(mut conf: Configuration) -> Result<Self, String> {
        if !conf.is_set("hbase.client.retries.number") {
            conf.set("hbase.client.retries.number", RETRIES);
        }
        let runtime = Builder::new_current_thread().enable_all().build().map_err(|e| e.to_string())?;
        Ok(Self { runtime, conf, connection: None, interrupt: None })
    }

    /// The settings.
    pub fn conf(&self) -> &Configuration {
        &self.conf
    }

    /// After this call, Ctrl-C interrupts waits instead of ending the process.
    ///
    /// # Errors
    /// If the thread cannot be started.
    pub fn handle_interrupts(&mut self) -> Result<(), String> {
        let interrupt = Arc::new(Interrupt::default());
        let told = interrupt.clone();
        let runtime = Builder::new_current_thread().enable_all().build().map_err(|e| e.to_string())?;
        let hear = move || {
            runtime.block_on(async {
                while tokio::signal::ctrl_c().await.is_ok() {
                    told.pressed.store(true, Ordering::SeqCst);
                    told.wake.notify_one();
                }
            });
        };
        evenkeel_common::thread::spawn("interrupts", hear).map_err(|e| e.to_string())?;
        self.interrupt = Some(interrupt);
        Ok(())
    }

    /// Clears an earlier Ctrl-C.
    pub fn clear_interrupt(&self) {
        if let Some(interrupt) = &self.interrupt {
            interrupt.pressed.store(false, Ordering::SeqCst);
        }
    }

    /// Fails if Ctrl-C was pressed since the last statement started.
    pub fn check_interrupt(&self) -> Result<(), Flow> {
        match self.interrupt.as_ref().is_some_and(|i| i.pressed.load(Ordering::SeqCst)) {
            true => Err(Flow::Interrupted),
            false => Ok(()),
        }
    }

    /// Waits for an operation of the client.
    pub fn wait<T>(&self, work: impl Future<Output = Result<T, ClientError>>) -> CommandResult<T> {
        self.until_interrupt(work)?.map_err(CommandError::from)
    }

    /// Waits for a duration.
    pub fn sleep(&self, seconds: f64) -> Result<(), Flow> {
        let time = Duration::try_from_secs_f64(seconds.max(0.0));
        let time = time.map_err(|_| RubyError::argument("time interval out of range"))?;
        self.until_interrupt(async { tokio::time::sleep(time).await })
    }

    fn until_interrupt<T>(&self, work: impl Future<Output = T>) -> Result<T, Flow> {
        let mut done = None;
        self.finish(Box::pin(async { done = Some(work.await) }))?;
        done.ok_or(Flow::Interrupted)
    }

    /// Runs a future to its end or to a Ctrl-C. Boxed, so that the runtime is not compiled for each
    /// future.
    fn finish(&self, work: Pin<Box<dyn Future<Output = ()> + '_>>) -> Result<(), Flow> {
        self.check_interrupt()?;
        let Some(interrupt) = self.interrupt.clone() else {
            self.runtime.block_on(work);
            return Ok(());
        };
        let pressed = async {
            while !interrupt.pressed.load(Ordering::SeqCst) {
                interrupt.wake.notified().await;
            }
        };
        self.runtime.block_on(async {
            tokio::select! {
                biased;
                () = work => Ok(()),
                () = pressed => Err(Flow::Interrupted),
            }
        })
    }

    /// The connection, opened if there is none.
    pub fn connection(&mut self) -> CommandResult<Connection> {
        if let Some(connection) = &self.connection {
            return Ok(connection.clone());
        }
        let config = crate::config::client_config(&self.conf).map_err(RubyError::runtime)?;
        let connect = async {
            let connecting = tokio::time::timeout(CONNECT_TIMEOUT, Connection::connect(config));
            connecting.await.unwrap_or_else(|_| Err(ClientError::Timeout("connecting".to_owned())))
        };
        let connection = self.wait(connect)?;
        self.connection = Some(connection.clone());
        Ok(connection)
    }

    /// The master's operations.
    pub fn admin(&mut self) -> CommandResult<Admin> {
        Ok(self.connection()?.admin())
    }

    /// A table.
    pub fn table(&mut self, name: TableName) -> CommandResult<Table> {
        Ok(self.connection()?.table(name))
    }
}
