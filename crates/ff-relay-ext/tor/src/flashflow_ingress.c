/**
 * @file flashflow_ingress.c
 * @brief The limit where clients enter: which links get how many bytes per second.
 *
 * The library has the rules. Here is what only tor knows of a link, and what only tor can do with the
 * answer: give it a token bucket, and have the peer send no more ahead than it lets in.
 *
 * It fails open. Whatever goes wrong, tor's own rule holds. Late documents limit nobody: without a
 * consensus of the last day links keep what they had, and new ones go by tor's rule.
 **/

#include "core/or/or.h"

#include "app/config/config.h"
#include "core/mainloop/connection.h"
#include "core/mainloop/mainloop.h"
#include "core/or/connection_or.h"
#include "feature/flashflow/flashflow.h"
#include "feature/flashflow/flashflow_config.h"
#include "feature/flashflow/flashflow_private.h"
#include "feature/nodelist/networkstatus.h"
#include "feature/nodelist/nodelist.h"
#include "feature/relay/routermode.h"
#include "lib/container/map.h"
#include "lib/evloop/compat_libevent.h"
#include "lib/metrics/metrics_store.h"
#include "lib/sandbox/sandbox.h"

#include "app/config/or_options_st.h"
#include "core/or/or_connection_st.h"
#include "feature/nodelist/networkstatus_st.h"
#include "feature/nodelist/node_st.h"
#include "feature/nodelist/routerstatus_st.h"

#ifdef HAVE_SYS_SOCKET_H
#include <sys/socket.h>
#endif

/** How often we look whether the consensus has other parameters, in seconds. */
#define LOOK_SECONDS 10
/** How old the consensus may be by which a link is judged, in seconds. */
#define CONSENSUS_SECONDS_MAX (24 * 60 * 60)
/** How long a relay may have no consensus at all before it says so, in seconds: at its first start it
 * has none. */
#define PATIENCE_SECONDS 60
/** What the peer of a limited link may send ahead: this part of a second of its limit. tor empties the
 * link's bucket ten times a second, so two rounds keep it busy. */
#define AHEAD_DIVISOR 5
/** And at least so many bytes: a TLS record. */
#define AHEAD_BYTES_MIN (16 << 10)
/** Where it would be more than that, in bytes, the kernel decides: most kernels allow no larger buffer
 * to be asked for, and a smaller one would be the limit. */
#define AHEAD_BYTES_MAX (208 << 10)

/** The rules; NULL before there are options. */
static ff_ingress *rules;
/** Whether they hold. */
static bool is_on;
/** Whether the library has failed. */
static bool has_failed;
/** Whether there are options, and whether they have changed since the rules were made. */
static bool has_options, options_are_new;
/** The parameters of the last consensus, by which the rules were made, and from when it is. */
static flashflow_param_list_t params;
static time_t params_valid_after;
/** Whether that consensus has a measured weight of any relay. */
static bool any_is_measured;
/** Whether links have not been looked at since the rules changed or a consensus was missing, and whether
 * the operator has not been told of the rules. */
static bool must_apply, must_tell;
/** Since when there was no consensus to go by, or 0, and whether the operator has been told. */
static time_t stale_since;
static bool stale_is_told;
/** Runs when it is time to look at options, consensus and links. */
static mainloop_event_t *look_event;
/** What limited links have moved, in bytes. */
static uint64_t limited_read, limited_written;

/** Whether links have limits by our rules. */
bool
flashflow_ingress_is_on(void)
{
  return is_on;
}

/* ---- The rules ------------------------------------------------------------------------------ */

/** Notes that the library has failed: tor's own rule holds for good. */
static void
fail(ff_status status)
{
  log_err(LD_BUG, "FlashFlow: internal error in the limit where clients enter (status %d). It is off "
          "until tor restarts, and tor's own rule holds.", (int) status);
  has_failed = true;
  is_on = false;
  must_apply = true;
  must_tell = false;
  flashflow_update_exact_buckets();
  if (look_event)
    mainloop_event_activate(look_event);
}

/** Takes new rules, which are ours to free. */
static void
take_rules(ff_ingress *made)
{
  const bool is_relay = server_mode(get_options()) != 0;
  const bool was_on = is_on;
  const char *ignored = ff_ingress_ignored(made);
  if (is_relay && ignored[0] && strcmp(ignored, ff_ingress_ignored(rules)))
    log_notice(LD_GENERAL, "FlashFlow: %s.", ignored);
  is_on = is_relay && ff_ingress_is_on(made);
  if (is_on != was_on || (is_on && !ff_ingress_is_same(rules, made)))
    must_apply = must_tell = true;
  ff_ingress_free(rules);
  rules = made;
  flashflow_update_exact_buckets();
}

/** Whether the weight of <b>rs</b> was measured. */
static bool
is_measured(const routerstatus_t *rs)
{
  return rs->has_bandwidth && !rs->bw_is_unmeasured;
}

/** Whether <b>ns</b> has a measured weight of any relay. */
static bool
has_measured_weight(const networkstatus_t *ns)
{
  SMARTLIST_FOREACH_BEGIN(ns->routerstatus_list, const routerstatus_t *, rs) {
    if (is_measured(rs))
      return true;
  } SMARTLIST_FOREACH_END(rs);
  return false;
}

/** Makes the rules anew if options or the consensus have changed. */
static void
refresh(void)
{
  if (has_failed || !has_options)
    return;
  const networkstatus_t *ns = networkstatus_get_latest_consensus();
  if (!options_are_new && (!ns || ns->valid_after == params_valid_after))
    return;
  options_are_new = false;
  if (ns) {
    flashflow_get_params(ns, true, &params);
    params_valid_after = ns->valid_after;
    any_is_measured = has_measured_weight(ns);
  }
  flashflow_option_list_t list;
  ff_ingress *made = NULL;
  flashflow_get_ingress_options(&list);
  ff_status status =
    ff_ingress_new(list.option, list.count, params.param, params.count, &made);
  flashflow_option_list_clear(&list);
  if (status == FF_STATUS_OK)
    take_rules(made);
  else
    fail(status);
}

/** The consensus, if it is one to judge links by. */
static const networkstatus_t *
get_fresh_consensus(void)
{
  const networkstatus_t *ns = networkstatus_get_latest_consensus();
  return ns && approx_time() - ns->valid_after <= CONSENSUS_SECONDS_MAX ? ns : NULL;
}

/* ---- What a link gets ----------------------------------------------------------------------- */

/** Adds to <b>peer</b> what the consensus says of it. */
static void
describe_relay(const routerstatus_t *rs, ff_ingress_peer *peer)
{
  peer->is_listed = true;
  peer->is_fast = rs->is_fast;
  peer->is_stable = rs->is_stable;
  peer->is_measured = is_measured(rs);
  peer->is_any_measured = any_is_measured;
  peer->weight = (uint64_t) rs->bandwidth_kb * 1000;
}

/** Puts into <b>peer</b> what is known of the other end of <b>conn</b>. An IPv4 address goes into
 * <b>ipv4</b>. */
static void
describe_peer(const or_connection_t *conn, ff_ingress_peer *peer, uint32_t *ipv4)
{
  const char *id = conn->identity_digest;
  memset(peer, 0, sizeof(*peer));
  peer->address = flashflow_address_bytes(&TO_CONN(conn)->addr, ipv4, &peer->address_len);
  if (tor_digest_is_zero(id))
    return;
  const node_t *node = node_get_by_id(id);
  peer->is_authenticated = true;
  peer->is_known = connection_or_digest_is_known_relay(id) != 0;
  if (node && node->rs)
    describe_relay(node->rs, peer);
}

/** Lets the kernel decide how large the buffers of <b>conn</b>'s socket are. Returns whether it can be
 * told so: Linux since 5.14, and not in tor's sandbox. */
static bool
unlock_buffers(const or_connection_t *conn)
{
#ifdef SO_BUF_LOCK
  const int nothing = 0;
  return !sandbox_is_active() &&
    setsockopt(TO_CONN(conn)->s, SOL_SOCKET, SO_BUF_LOCK, &nothing, sizeof(nothing)) == 0;
#else
  (void) conn;
  return false;
#endif
}

/** Lets the peer of <b>conn</b> send ahead what the kernel lets it. */
static void
lift_receive_buffer(or_connection_t *conn)
{
  if (!conn->flashflow_limits_ahead)
    return;
  conn->flashflow_limits_ahead = 0;
  (void) unlock_buffers(conn);
}

/** Limits what the peer of <b>conn</b> may send ahead of its bucket, which has this <b>rate</b>: those
 * bytes lie in kernels, in front of all that its other circuits send. Where that could not be taken back
 * nothing is done: relays come to be exempt. */
static void
limit_receive_buffer(or_connection_t *conn, int rate)
{
  const int bytes = MAX(rate / AHEAD_DIVISOR, AHEAD_BYTES_MIN);
  /* A link that has come past the defences will be a measurement's. */
  if (bytes > AHEAD_BYTES_MAX || conn->flashflow_is_exempt ||
      get_options()->ConstrainedSockets || !SOCKET_OK(TO_CONN(conn)->s)) {
    lift_receive_buffer(conn);
    return;
  }
  if (unlock_buffers(conn) &&
      setsockopt(TO_CONN(conn)->s, SOL_SOCKET, SO_RCVBUF, &bytes, sizeof(bytes)) == 0)
    conn->flashflow_limits_ahead = 1;
}

/** Has <b>conn</b> be limited by nothing of ours. */
void
flashflow_ingress_forget(or_connection_t *conn)
{
  conn->flashflow_ingress = FLASHFLOW_INGRESS_NONE;
  conn->flashflow_has_bucket = 0;
  lift_receive_buffer(conn);
}

/** Does with <b>conn</b> what has been decided, and puts its bucket into <b>rate</b> and <b>burst</b>. */
static void
apply(or_connection_t *conn, const ff_ingress_decision *decision, int *rate, int *burst)
{
  if (decision->has_bucket) {
    *rate = (int) decision->rate;
    *burst = (int) decision->burst;
  } else {
    *rate = (int) get_options()->BandwidthRate;
    *burst = (int) get_options()->BandwidthBurst;
  }
  conn->flashflow_rate = *rate;
  conn->flashflow_burst = *burst;
  conn->flashflow_has_bucket = decision->has_bucket;
  conn->flashflow_ingress =
    decision->is_exempt ? FLASHFLOW_INGRESS_EXEMPT : FLASHFLOW_INGRESS_LIMITED;
  if (decision->is_exempt)
    lift_receive_buffer(conn);
  else
    limit_receive_buffer(conn, *rate);
}

/** Puts into <b>rate</b> and <b>burst</b>, which are those of tor's own rule, what <b>conn</b> gets.
 * With <b>is_new</b> it had nothing before. */
void
flashflow_ingress_limit(or_connection_t *conn, int is_new, int *rate, int *burst)
{
  ff_ingress_peer peer;
  ff_ingress_decision decision;
  uint32_t ipv4;
  refresh();
  if (!is_on || flashflow_lifts_conn_limit(conn)) {
    flashflow_ingress_forget(conn);
    return;
  }
  /* Its bucket counts only when it is open, and then tor asks again. */
  if (TO_CONN(conn)->state != OR_CONN_STATE_OPEN)
    return;
  if (!get_fresh_consensus()) {
    if (!is_new && conn->flashflow_ingress != FLASHFLOW_INGRESS_NONE) {
      *rate = conn->flashflow_rate;
      *burst = conn->flashflow_burst;
    }
    return;
  }
  describe_peer(conn, &peer, &ipv4);
  ff_status status = ff_ingress_decide(rules, &peer, &decision);
  if (status == FF_STATUS_OK)
    apply(conn, &decision, rate, burst);
  else
    fail(status);
}

/** Notes bytes that <b>conn</b> has moved. */
void
flashflow_ingress_note_bytes(const connection_t *conn, size_t read, size_t written)
{
  if (!is_on || conn->type != CONN_TYPE_OR ||
      CONST_TO_OR_CONN(conn)->flashflow_ingress != FLASHFLOW_INGRESS_LIMITED)
    return;
  limited_read += read;
  limited_written += written;
}

/* ---- What the operator sees ----------------------------------------------------------------- */

/** Tells the operator of the rules, and what they mean for the relays of <b>ns</b>. */
static void
tell_rules(const networkstatus_t *ns)
{
  int counts[FF_INGRESS_REASON_NONE_EXEMPT + 1] = { 0 };
  SMARTLIST_FOREACH_BEGIN(ns->routerstatus_list, const routerstatus_t *, rs) {
    ff_ingress_peer peer = { .is_authenticated = true, .is_known = true };
    ff_ingress_decision decision;
    describe_relay(rs, &peer);
    if (ff_ingress_decide(rules, &peer, &decision) == FF_STATUS_OK &&
        (size_t) decision.reason < ARRAY_LENGTH(counts))
      ++counts[decision.reason];
  } SMARTLIST_FOREACH_END(rs);
  log_notice(LD_GENERAL, "FlashFlow: links of clients are limited: %s. Of %d relays in the consensus %d "
             "are exempt; not exempt are %d without Fast, %d without Stable, and %d because none is.",
             ff_ingress_text(rules), smartlist_len(ns->routerstatus_list),
             counts[FF_INGRESS_REASON_EXEMPT_RELAY], counts[FF_INGRESS_REASON_NOT_FAST],
             counts[FF_INGRESS_REASON_NOT_STABLE], counts[FF_INGRESS_REASON_NONE_EXEMPT]);
}

/** Warns once when links cannot be judged for want of a consensus. */
static void
tell_stale(void)
{
  const bool is_there = networkstatus_get_latest_consensus() != NULL;
  if (!stale_since)
    stale_since = approx_time();
  if (stale_is_told || (!is_there && approx_time() - stale_since < PATIENCE_SECONDS))
    return;
  stale_is_told = true;
  log_warn(LD_GENERAL, "FlashFlow: the consensus is %s. Links keep the limits they had, and new ones go "
           "by tor's own rule. Check this relay's clock and its connection to directories.",
           is_there ? "more than a day old" : "missing");
}

/** Tells the operator what has changed. */
static void
tell(void)
{
  const networkstatus_t *ns = get_fresh_consensus();
  if (!is_on) {
    if (must_tell)
      log_notice(LD_GENERAL, "FlashFlow: the limit for links of clients is off; tor's own rule holds.");
    must_tell = false;
  } else if (!ns) {
    tell_stale();
    return;
  } else if (must_tell) {
    must_tell = false;
    tell_rules(ns);
  }
  /* Links that came meanwhile have tor's own rule. tor has them looked at when a consensus comes, but
   * not when the clock is set right. */
  if (stale_since)
    must_apply = true;
  stale_since = 0;
  stale_is_told = false;
}

/** Callback of <b>look_event</b>. */
static void
look_cb(mainloop_event_t *event, void *arg)
{
  const struct timeval delay = { .tv_sec = LOOK_SECONDS };
  (void) arg;
  refresh();
  if (must_apply) {
    must_apply = false;
    connection_or_update_token_buckets(get_connection_array(), get_options());
  }
  tell();
  if (server_mode(get_options()))
    mainloop_event_schedule(event, &delay);
}

/** Where links of an identity come from. */
typedef struct origin_t {
  /** The first one's address. */
  tor_addr_t addr;
  /** Whether another one has another. */
  bool has_others;
} origin_t;

/** Notes that a link of an identity comes from <b>conn</b>'s address. Returns whether it is the first
 * that shows that they come from several: a relay's keys can be on two hosts. */
static bool
note_origin(digestmap_t *origins, const or_connection_t *conn)
{
  origin_t *origin = digestmap_get(origins, conn->identity_digest);
  if (!origin) {
    origin = tor_malloc_zero(sizeof(*origin));
    tor_addr_copy(&origin->addr, &TO_CONN(conn)->addr);
    (void) digestmap_set(origins, conn->identity_digest, origin);
    return false;
  }
  if (origin->has_others || tor_addr_eq(&origin->addr, &TO_CONN(conn)->addr))
    return false;
  origin->has_others = true;
  return true;
}

/** Adds a value with a label to what the MetricsPort shows. */
static void
add_metric(metrics_store_t *store, metrics_type_t type, const char *name, const char *help,
           const char *label, int64_t value)
{
  metrics_store_entry_t *entry = metrics_store_add(store, type, name, help, 0, NULL);
  metrics_store_entry_add_label(entry, label);
  metrics_store_entry_update(entry, value);
}

/** Adds how many links there are of each kind. */
static void
add_links(metrics_store_t *store)
{
  static const char name[] = "tor_flashflow_ingress_links";
  static const char help[] = "Open links that are limited or exempt, and exempt identities whose links "
    "come from two addresses or more";
  int64_t limited = 0, exempt = 0, two_addresses = 0;
  digestmap_t *origins = digestmap_new();
  SMARTLIST_FOREACH_BEGIN(get_connection_array(), const connection_t *, base) {
    if (base->type != CONN_TYPE_OR || base->state != OR_CONN_STATE_OPEN || base->marked_for_close)
      continue;
    const or_connection_t *conn = CONST_TO_OR_CONN(base);
    const bool is_exempt = conn->flashflow_ingress == FLASHFLOW_INGRESS_EXEMPT;
    limited += conn->flashflow_ingress == FLASHFLOW_INGRESS_LIMITED;
    exempt += is_exempt;
    /* Anybody can make identities, but they are not exempt. */
    if (is_exempt && !conn->is_outgoing && !tor_digest_is_zero(conn->identity_digest))
      two_addresses += note_origin(origins, conn);
  } SMARTLIST_FOREACH_END(base);
  digestmap_free(origins, tor_free_);
  add_metric(store, METRICS_TYPE_GAUGE, name, help,
             metrics_format_label("state", "limited"), limited);
  add_metric(store, METRICS_TYPE_GAUGE, name, help,
             metrics_format_label("state", "exempt"), exempt);
  add_metric(store, METRICS_TYPE_GAUGE, name, help,
             metrics_format_label("state", "two_addresses"), two_addresses);
}

/** Adds our part to what the MetricsPort shows. */
void
flashflow_ingress_add_metrics(metrics_store_t *store)
{
  static const char name[] = "tor_flashflow_ingress_limited_bytes_total";
  static const char help[] = "Bytes that limited links have moved";
  if (!is_on)
    return;
  add_links(store);
  add_metric(store, METRICS_TYPE_COUNTER, name, help,
             metrics_format_label("direction", "read"), (int64_t) limited_read);
  add_metric(store, METRICS_TYPE_COUNTER, name, help,
             metrics_format_label("direction", "written"), (int64_t) limited_written);
}

/* ---- Start and end -------------------------------------------------------------------------- */

/** Takes the options that have just come into force. */
void
flashflow_ingress_options_changed(void)
{
  has_options = options_are_new = true;
  if (look_event)
    mainloop_event_activate(look_event);
}

/** Starts to look at options and consensus. */
void
flashflow_ingress_start(void)
{
  look_event = mainloop_event_new(look_cb, NULL);
  mainloop_event_activate(look_event);
}

/** Frees all that is here. */
void
flashflow_ingress_stop(void)
{
  ff_ingress_free(rules);
  rules = NULL;
  is_on = has_options = options_are_new = false;
  must_apply = must_tell = false;
  params.count = 0;
  params_valid_after = 0;
  mainloop_event_free(look_event);
}
