//! Metrics of memcached over UDP.

use counters::{UdpDrop, UdpTotals};

use super::openmetrics::Page;

/// Its families of `/metrics`.
pub fn families(page: &mut Page, udp: &UdpTotals) {
    page.family("dovetail_udp_datagrams", "counter", "Datagrams from and to memcached clients");
    page.sample("dovetail_udp_datagrams_total", &[("dir", "in")], udp.datagrams_in);
    page.sample("dovetail_udp_datagrams_total", &[("dir", "out")], udp.datagrams_out);
    page.family("dovetail_udp_drops", "counter", "Datagrams that were dropped, by reason");
    for (reason, count) in UdpDrop::ALL.iter().zip(udp.drops) {
        page.sample("dovetail_udp_drops_total", &[("reason", reason.name())], count);
    }
    page.sample("dovetail_udp_drops_total", &[("reason", "kernel")], udp.kernel_drops);
    page.family("dovetail_udp_refused_replies", "counter", "Replies that did not leave, by reason");
    let name = "dovetail_udp_refused_replies_total";
    page.sample(name, &[("reason", "reply_factor")], udp.too_long);
    page.sample(name, &[("reason", "no_room")], udp.lost_replies);
}
