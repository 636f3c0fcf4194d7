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
  const flashflow_link_t *link =
    CONST_TO_OR_CONN(conn)->flashflow_link;
  return !link || !(link->circuit || link->is_coordinator);
}

/** Puts into <b>allowance</b> what background may move. Returns whether there is a limit. */
static bool
get_allowance(ff_allowance *allowance)
{
  return flashflow_is_measuring &&
    ff_target_background_allowance(flashflow_target, allowance) == FF_STATUS_OK &&
    allowance->is_limited;
}

/** Of <b>bytes</b> that are in the relay's bucket, how many <b>conn</b> may move while background
 * may move <b>share</b>. What background has not used yet stays there for it: tor shares a bucket
 * out by connections, and a relay may have fewer for its clients than measurers have. */
static size_t
limit_to_share(const connection_t *conn, size_t bytes, uint64_t share)
{
  size_t kept = (size_t) MIN((uint64_t) bytes, share);
  return is_background(conn) ? kept : bytes - kept;
}

/** Of <b>bytes</b> that <b>conn</b> might read, how many it may. */
size_t
flashflow_limit_read(const connection_t *conn, size_t bytes)
{
  ff_allowance allowance;
  if (!get_allowance(&allowance))
    return bytes;
  return limit_to_share(conn, bytes, allowance.receive_bytes);
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

/** Of <b>bytes</b> that <b>conn</b> might write, how many it may. */
size_t
flashflow_limit_write(const connection_t *conn, size_t bytes)
{
  ff_allowance allowance;
  if (!get_allowance(&allowance))
    return bytes;
  return limit_to_share(conn, bytes, allowance.send_bytes);
}

/** Whether <b>conn</b> must wait before it reads more of the relay's <b>bucket</b>. */
bool
flashflow_must_pause_read(const connection_t *conn, size_t bucket)
{
  if (bucket == 0 || flashflow_limit_read(conn, bucket) > 0)
    return false;
  if (is_background(conn))
    (void) ff_target_on_background_wait(flashflow_target);
  return true;
}

/** Whether <b>conn</b> must wait before it writes more of the relay's <b>bucket</b>. */
bool
flashflow_must_pause_write(const connection_t *conn, size_t bucket)
{
  if (bucket == 0 || flashflow_limit_write(conn, bucket) > 0)
    return false;
  if (is_background(conn))
    (void) ff_target_on_background_wait(flashflow_target);
  return true;
}

/** Notes bytes that <b>conn</b> has moved. */
void
flashflow_note_bytes(const connection_t *conn, size_t read, size_t written)
{
  if (!flashflow_is_measuring || !is_background(conn))
    return;
  flashflow_echo_note_background(read);
  (void) ff_target_on_background(flashflow_target, written, read);
}

/** Whether <b>conn</b> is free of the limits for single clients. */
bool
flashflow_lifts_conn_limit(const or_connection_t *conn)
{
  return conn->flashflow_link && conn->flashflow_link->circuit;
}

/** Whether <b>addr</b> is a measurer's of the measurement that is granted or running. */
bool
flashflow_is_measurer(const tor_addr_t *addr)
{
  if (!flashflow_is_measuring)
    return false;
  uint32_t ipv4;
  switch (tor_addr_family(addr)) {
    case AF_INET:
      ipv4 = tor_addr_to_ipv4n(addr);
      return ff_target_is_exempt(flashflow_target, (const uint8_t *) &ipv4, 4);
    case AF_INET6:
      return ff_target_is_exempt(flashflow_target, tor_addr_to_in6_addr8(addr), 16);
    default:
      return false;
  }
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
  return metrics_stores;
}
