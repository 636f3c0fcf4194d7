/**
 * @file flashflow_kist.c
 * @brief What tor's scheduler KIST does with a limited link.
 *
 * KIST puts no more into the link's output buffer than its bucket lets out. Once it has, the link is taken
 * out of KIST's runs until the bucket has room for several cells.
 **/

#define CHANNEL_OBJECT_PRIVATE
#include "core/or/or.h"

#include "core/mainloop/connection.h"
#include "core/or/channel.h"
#include "core/or/channeltls.h"
#include "core/or/scheduler.h"
#include "feature/flashflow/flashflow.h"
#include "feature/flashflow/flashflow_private.h"
#include "lib/evloop/compat_libevent.h"
#include "lib/evloop/token_bucket.h"
#include "lib/time/compat_time.h"

#include "core/or/or_connection_st.h"

/** How often waiting links are looked at, in milliseconds. */
#define LOOK_MILLISECONDS 10
/** A link waits when it has room for no more than so many cells, or for less than it gets in
 * WAKE_MILLISECONDS. */
#define WAIT_CELLS 10
/** It stops waiting when it has room for what it gets in so many milliseconds. Each time costs two questions
 * to the kernel, TLS records and writes; cells of other circuits are delayed by this time, and by up to 30 ms
 * more for steps of buckets and clocks. */
#define WAKE_MILLISECONDS 40
/** Bytes that KIST counts for a cell. */
#define CELL_COST (CELL_MAX_NETWORK_SIZE + TLS_PER_CELL_OVERHEAD)

/** The links that have cells and wait for room; NULL before the first. */
static smartlist_t *waiting_links;
/** Looks at them. */
static periodic_timer_t *wake_timer;

/** How many bytes may go into the output buffer of <b>conn</b> now: no more than its bucket lets out. What
 * waits in circuits' queues can be overtaken by another circuit, and what waits in the buffer cannot. */
static uint64_t
room_of(or_connection_t *conn)
{
  if (!flashflow_ingress_is_on() || !conn->flashflow_has_bucket || flashflow_lifts_conn_limit(conn))
    return UINT64_MAX;
  (void) token_bucket_rw_refill(&conn->bucket, monotime_coarse_get_stamp());
  const size_t room = token_bucket_rw_get_write(&conn->bucket);
  const size_t waiting = connection_get_outbuf_len(TO_CONN(conn));
  return room > waiting ? room - waiting : 0;
}

/** The connection of <b>chan</b>, if it may be limited. */
static or_connection_t *
limited_conn(const channel_t *chan)
{
  return flashflow_ingress_is_on() ? CONST_BASE_CHAN_TO_TLS(chan)->conn : NULL;
}

/** How many bytes KIST may put into the output buffer of <b>chan</b> now. Without room for a cell, tor need
 * not ask the kernel what its socket would take. */
uint64_t
flashflow_kist_room(const channel_t *chan)
{
  or_connection_t *conn = limited_conn(chan);
  return conn ? room_of(conn) : UINT64_MAX;
}

/** Room with which <b>conn</b>, which has a bucket, stops waiting, in bytes. */
static uint64_t
wake_room(const or_connection_t *conn)
{
  const uint64_t gathered = (uint64_t) conn->flashflow_rate * WAKE_MILLISECONDS / 1000;
  return MIN(MAX(CELL_COST, gathered), (uint64_t) conn->flashflow_burst);
}

/** Lets the channels whose buckets have room again write. */
static void
wake_links(periodic_timer_t *timer, void *unused)
{
  (void) unused;
  SMARTLIST_FOREACH_BEGIN(waiting_links, or_connection_t *, conn) {
    if (room_of(conn) < wake_room(conn))
      continue;
    conn->flashflow_waits = 0;
    SMARTLIST_DEL_CURRENT(waiting_links, conn);
    if (conn->chan && !TO_CONN(conn)->marked_for_close)
      scheduler_channel_wants_writes(TLS_CHAN_TO_BASE(conn->chan));
  } SMARTLIST_FOREACH_END(conn);
  if (smartlist_len(waiting_links) == 0)
    periodic_timer_disable(timer);
}

/** Whether <b>chan</b>, which has cells, waits for room, because KIST has used what it had, and not because
 * the kernel takes no more. It becomes ours to wake: KIST would look at it at each of its runs, several hundred
 * times a second. */
bool
flashflow_kist_waits(const channel_t *chan)
{
  static const struct timeval interval = { 0, LOOK_MILLISECONDS * 1000 };
  or_connection_t *conn = limited_conn(chan);
  if (!conn || room_of(conn) >= MIN(wake_room(conn), WAIT_CELLS * CELL_COST))
    return false;
  if (conn->flashflow_waits)
    return true;
  if (!waiting_links) {
    waiting_links = smartlist_new();
    wake_timer = periodic_timer_new(tor_libevent_get_base(), &interval, wake_links, NULL);
  } else if (smartlist_len(waiting_links) == 0) {
    periodic_timer_launch(wake_timer, &interval);
  }
  conn->flashflow_waits = 1;
  smartlist_add(waiting_links, conn);
  return true;
}

/** Whether <b>chan</b> is ours to wake. */
bool
flashflow_kist_still_waits(const channel_t *chan)
{
  if (!waiting_links || smartlist_len(waiting_links) == 0)
    return false;
  const or_connection_t *conn = CONST_BASE_CHAN_TO_TLS(chan)->conn;
  return conn && conn->flashflow_waits;
}

/** Notes that <b>conn</b> is about to be freed. */
void
flashflow_kist_about_to_close(or_connection_t *conn)
{
  if (!conn->flashflow_waits || !waiting_links)
    return;
  conn->flashflow_waits = 0;
  smartlist_remove(waiting_links, conn);
}

/** Frees all that is here. The links themselves may be gone. */
void
flashflow_kist_stop(void)
{
  periodic_timer_free(wake_timer);
  smartlist_free(waiting_links);
}
