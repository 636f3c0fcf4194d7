/**
 * @file flashflow_share.c
 * @brief Everybody else's traffic during a measurement: its share, and its exemptions; and what the
 * MetricsPort shows.
 **/

#include "core/or/or.h"

#include "core/mainloop/connection.h"
#include "core/or/connection_or.h"
#include "feature/flashflow/flashflow.h"
#include "feature/flashflow/flashflow_private.h"
#include "lib/metrics/metrics_store.h"
#include "lib/time/compat_time.h"

#include "core/or/or_connection_st.h"

/** What the MetricsPort shows; NULL before it was asked. */
static metrics_store_t *metrics;
/** A list of that. */
static smartlist_t *metrics_stores;

/** Whether bytes of <b>conn</b> count as background now. */
static bool
is_background(const connection_t *conn)
{
  if (conn->type != CONN_TYPE_OR)
    return true;
  return flashflow_link_part(CONST_TO_OR_CONN(conn)->flashflow_link) == FF_PART_NONE;
}

/** Whether <b>conn</b> is a link whose handshake is not over. It is nobody's traffic yet: a full relay
 * would otherwise let measurers' links wait behind its clients, and a measurement that opens links late
 * would seem to hold back others. */
static bool
is_handshake(const connection_t *conn)
{
  return conn->type == CONN_TYPE_OR && conn->state != OR_CONN_STATE_OPEN;
}

/** Puts into <b>allowance</b> what background may move. Returns whether there is a limit. */
static bool
get_allowance(ff_allowance *allowance)
{
  return ff_target_background_allowance(flashflow_target, allowance) == FF_STATUS_OK &&
    allowance->is_limited;
}

/** Of <b>bytes</b> that are in the relay's bucket, how many <b>conn</b> may read. Background may use
 * its allowance. Measurement traffic leaves of that what is reserved: tor shares a bucket out by
 * connections, and a relay may have fewer for its clients than measurers have. */
size_t
flashflow_limit_read(const connection_t *conn, size_t bytes)
{
  ff_allowance allowance;
  if (!flashflow_is_measuring || is_handshake(conn))
    return bytes;
  const bool has_limit = get_allowance(&allowance);
  if (is_background(conn))
    return has_limit ? (size_t) MIN(bytes, allowance.receive_bytes) : bytes;
  if (has_limit)
    bytes -= (size_t) MIN(bytes, allowance.receive_reserved_bytes);
  return MIN(bytes, flashflow_bucket_read());
}

/** What a connection may read by the limit of its own, which is <b>bytes</b> or, below zero, none.
 * A measurement link does not read more than there is room for in its queue. */
ssize_t
flashflow_limit_link(const connection_t *conn, ssize_t bytes)
{
  if (!flashflow_is_measuring || conn->type != CONN_TYPE_OR)
    return bytes;
  const flashflow_link_t *link = CONST_TO_OR_CONN(conn)->flashflow_link;
  if (!link || !link->circuit || !link->conn->chan)
    return bytes;
  ssize_t room = (ssize_t) flashflow_echo_room(link);
  return bytes < 0 ? room : MIN(bytes, room);
}

/** Of <b>bytes</b> that are in the relay's bucket, how many <b>conn</b> may write. */
size_t
flashflow_limit_write(const connection_t *conn, size_t bytes)
{
  ff_allowance allowance;
  if (!flashflow_is_measuring || is_handshake(conn))
    return bytes;
  const bool has_limit = get_allowance(&allowance);
  if (is_background(conn))
    return has_limit ? (size_t) MIN(bytes, allowance.send_bytes) : bytes;
  if (has_limit)
    bytes -= (size_t) MIN(bytes, allowance.send_reserved_bytes);
  return MIN(bytes, flashflow_bucket_write());
}

/** Whether <b>conn</b> must wait before it reads more of the <b>bucket</b> that is its limit. An
 * empty one is tor's to notice. */
bool
flashflow_must_pause_read(const connection_t *conn, size_t bucket)
{
  if (bucket == 0 || flashflow_limit_read(conn, bucket) > 0)
    return false;
  if (is_background(conn))
    (void) ff_target_on_background_wait(flashflow_target);
  return true;
}

/** Whether <b>conn</b> must wait before it writes more of the <b>bucket</b> that is its limit. */
bool
flashflow_must_pause_write(const connection_t *conn, size_t bucket)
{
  if (bucket == 0 || flashflow_limit_write(conn, bucket) > 0)
    return false;
  if (is_background(conn))
    (void) ff_target_on_background_wait(flashflow_target);
  return true;
}

/** Notes bytes that <b>conn</b> has moved. What others move counts also while nothing is measured: a
 * measurement leaves them what they had before. */
void
flashflow_note_bytes(const connection_t *conn, size_t read, size_t written)
{
  ff_allowance allowance;
  flashflow_ingress_note_bytes(conn, read, written);
  if (!flashflow_is_allowed || is_handshake(conn))
    return;
  if (!is_background(conn)) {
    if (flashflow_is_measuring)
      flashflow_bucket_take(read, written);
    return;
  }
  if (flashflow_is_measuring) {
    flashflow_echo_note_background(read);
    /* What exceeds the share does not count in the estimate either. */
    if (get_allowance(&allowance))
      flashflow_bucket_take((size_t) MIN(read, allowance.receive_reserved_bytes),
                            (size_t) MIN(written, allowance.send_reserved_bytes));
  }
  (void) ff_target_on_background(flashflow_target, written, read,
                                 monotime_coarse_absolute_usec());
}

/** Whether <b>conn</b> is free of the limits for single clients. */
bool
flashflow_lifts_conn_limit(const or_connection_t *conn)
{
  return conn->flashflow_link && conn->flashflow_link->circuit;
}

/** The bytes of <b>addr</b>, of which there are 4 or 16, or none. */
const uint8_t *
flashflow_address_bytes(const tor_addr_t *addr, uint32_t *ipv4, size_t *len)
{
  switch (tor_addr_family(addr)) {
    case AF_INET:
      *ipv4 = tor_addr_to_ipv4n(addr);
      *len = 4;
      return (const uint8_t *) ipv4;
    case AF_INET6:
      *len = 16;
      return tor_addr_to_in6_addr8(addr);
    default:
      *len = 0;
      return NULL;
  }
}

/** Whether a link from <b>addr</b> is to be let past the defences: it is a measurer's of the
 * measurement that is granted or running. */
bool
flashflow_is_exempt(const tor_addr_t *addr)
{
  uint32_t ipv4;
  size_t len;
  if (!flashflow_is_measuring)
    return false;
  const uint8_t *bytes = flashflow_address_bytes(addr, &ipv4, &len);
  return ff_target_is_exempt(flashflow_target, bytes, len);
}

/** Notes that a link has come, for which tor asks twice. Returns whether it is let past the defences:
 * of each measurer as many are as it was announced with. */
bool
flashflow_use_exemption(or_connection_t *conn)
{
  uint32_t ipv4;
  size_t len;
  if (!conn->flashflow_is_exempt && flashflow_is_measuring) {
    const uint8_t *bytes = flashflow_address_bytes(&TO_CONN(conn)->addr, &ipv4, &len);
    conn->flashflow_is_exempt = ff_target_use_exemption(flashflow_target, bytes, len);
  }
  return conn->flashflow_is_exempt;
}

/** Frees what the MetricsPort shows. */
void
flashflow_free_metrics(void)
{
  metrics_store_free(metrics);
  smartlist_free(metrics_stores);
}

/** What the MetricsPort shows. */
const smartlist_t *
flashflow_get_metrics(void)
{
  ff_totals totals;
  if (!flashflow_target || ff_target_totals(flashflow_target, &totals) != FF_STATUS_OK)
    return NULL;
  if (!metrics) {
    metrics = metrics_store_new();
    metrics_stores = smartlist_new();
    smartlist_add(metrics_stores, metrics);
  }
  const struct {
    const char *name;
    const char *help;
    uint64_t value;
  } counters[] = {
    { "tor_flashflow_granted_total", "Measurements granted", totals.granted },
    { "tor_flashflow_refused_total", "Requests for a measurement refused", totals.refused },
    { "tor_flashflow_completed_total", "Measurements that ended as planned", totals.completed },
    { "tor_flashflow_failed_total", "Measurements that failed", totals.failed },
    { "tor_flashflow_echoed_bytes_total", "Bytes of cells echoed", totals.echoed_bytes },
    { "tor_flashflow_background_bytes_total",
      "Bytes received from others while measured", totals.background_bytes },
    { "tor_flashflow_background_waits_total",
      "How often others had to wait for their share", totals.background_waits },
  };
  metrics_store_reset(metrics);
  for (size_t i = 0; i < ARRAY_LENGTH(counters); ++i) {
    metrics_store_entry_t *entry =
      metrics_store_add(metrics, METRICS_TYPE_COUNTER, counters[i].name,
                        counters[i].help, 0, NULL);
    metrics_store_entry_update(entry, (int64_t) counters[i].value);
  }
  flashflow_ingress_add_metrics(metrics);
  return metrics_stores;
}
