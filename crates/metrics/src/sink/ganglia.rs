//! [`GangliaSink`]: packets to gmond, in the protocol of Ganglia 3.1.
//!
//! Each metric is two UDP packets in XDR (RFC 4506), as `gm_protocol.x` of Ganglia defines them:
//!
//! ```text
//! metadata: 128, host, name, spoofed = 0, type, name, units = "", slope, tmax s = 60, dmax s = 0,
//!           1, "GROUP", group
//! value:    133, host, name, spoofed = 0, "%s", value
//! ```
//!
//! Numbers are 4 bytes, big endian; a string is its length, its bytes, and zeros up to a multiple
//! of 4. The group consists of context and record name; the name is the group followed by the
//! metric. The type of integers is `float`, as Hadoop sends its longs, because Ganglia has no
//! integer of 8 bytes.

use std::io;
use std::net::{SocketAddr, ToSocketAddrs, UdpSocket};

use crate::record::{Record, Value};
use crate::sink::number::value_text;
use crate::sink::periodic::{Round, Sink};

const METADATA: u32 = 128;
const STRING_VALUE: u32 = 133;
const SLOPE_POSITIVE: u32 = 1;
const SLOPE_BOTH: u32 = 3;
const TMAX_S: u32 = 60;
const DMAX_S: u32 = 0;
/// Limit of a string. gmond's packet buffer is 1,500 bytes, and metadata contains a name twice.
const STRING_BYTES_MAX: usize = 256;

/// A sink for gmond servers.
#[derive(Debug)]
pub struct GangliaSink {
    servers: Vec<(String, u16)>,
}

impl GangliaSink {
    /// A sink that sends to each of these servers. Host names are resolved in each round.
    pub fn new(servers: Vec<(String, u16)>) -> Self {
        Self { servers }
    }

    fn addresses(&self) -> io::Result<Vec<SocketAddr>> {
        let mut found = Vec::new();
        for (host, port) in &self.servers {
            found.extend((host.as_str(), *port).to_socket_addrs()?.next());
        }
        Ok(found)
    }
}

impl Sink for GangliaSink {
    fn put(&mut self, round: &Round<'_>) -> io::Result<()> {
        for address in self.addresses()? {
            let any = if address.is_ipv4() { "0.0.0.0:0" } else { "[::]:0" };
            let socket = UdpSocket::bind(any)?;
            for record in round.records {
                send_record(&socket, address, record, round.hostname)?;
            }
        }
        Ok(())
    }
}

fn send_record(socket: &UdpSocket, to: SocketAddr, record: &Record, hostname: &str) -> io::Result<()> {
    let group = format!("{}.{}", record.context, record.name);
    for metric in record.all_metrics() {
        let name = format!("{group}.{}", metric.name());
        socket.send_to(&metadata(hostname, &name, &group, metric.value), to)?;
        socket.send_to(&value(hostname, &name, metric.value), to)?;
    }
    Ok(())
}

fn metadata(hostname: &str, name: &str, group: &str, value: Value) -> Vec<u8> {
    let (type_name, slope) = match value {
        Value::Counter(_) => ("float", SLOPE_POSITIVE),
        Value::Gauge(_) => ("float", SLOPE_BOTH),
        Value::Real(_) => ("double", SLOPE_BOTH),
    };
    let mut packet = Xdr::default();
    packet.int(METADATA).string(hostname).string(name).int(0);
    packet.string(type_name).string(name).string("");
    packet.int(slope).int(TMAX_S).int(DMAX_S);
    packet.int(1).string("GROUP").string(group);
    packet.0
}

fn value(hostname: &str, name: &str, value: Value) -> Vec<u8> {
    let mut packet = Xdr::default();
    packet.int(STRING_VALUE).string(hostname).string(name).int(0);
    packet.string("%s").string(&value_text(value));
    packet.0
}

#[derive(Default)]
struct Xdr(Vec<u8>);

impl Xdr {
    fn int(&mut self, value: u32) -> &mut Self {
        self.0.extend(value.to_be_bytes());
        self
    }

    /// Appends a string, cut at [`STRING_BYTES_MAX`], which keeps a packet within gmond's buffer.
    fn string(&mut self, text: &str) -> &mut Self {
        let bytes = text.as_bytes().get(..STRING_BYTES_MAX).unwrap_or(text.as_bytes());
        self.int(u32::try_from(bytes.len()).unwrap_or(0));
        self.0.extend(bytes);
        self.0.resize(self.0.len().next_multiple_of(4), 0);
        self
    }
}
