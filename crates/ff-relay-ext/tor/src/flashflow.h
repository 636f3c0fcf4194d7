/**
 * @file flashflow.h
 * @brief What tor calls to be measured by FlashFlow. The hooks file says from where.
 *
 * All of it runs on the main thread. While no measurement is granted, each call costs a test of
 * one variable or of one pointer.
 **/

#ifndef TOR_FEATURE_FLASHFLOW_FLASHFLOW_H
#define TOR_FEATURE_FLASHFLOW_FLASHFLOW_H

#include "lib/cc/torint.h"

struct cell_t;
struct channel_t;
struct connection_t;
struct or_connection_t;
struct or_options_t;
struct smartlist_t;
struct tor_addr_t;

/** Whether token buckets keep the fraction of a step (17 ms) that a refill does not count: this relay
 * may be measured, or has limits for links. tor drops it, and so forwards 6 to 23 percent less than
 * BandwidthRate, depending on when it happens to look: what such a relay can forward is no number
 * that could be measured twice. A link with a bucket of its own loses as much. */
extern int flashflow_exact_buckets;

bool flashflow_handle_cell(struct cell_t *cell, struct or_connection_t *conn);
bool flashflow_refuses_cell(struct or_connection_t *conn, uint8_t command, uint32_t circ_id);
void flashflow_flushed_some(struct or_connection_t *conn);
void flashflow_about_to_close(struct or_connection_t *conn);

size_t flashflow_limit_read(const struct connection_t *conn, size_t bytes);
ssize_t flashflow_limit_link(const struct connection_t *conn, ssize_t bytes);
size_t flashflow_limit_write(const struct connection_t *conn, size_t bytes);
bool flashflow_must_pause_read(const struct connection_t *conn, size_t bucket);
bool flashflow_must_pause_write(const struct connection_t *conn, size_t bucket);
void flashflow_note_bytes(const struct connection_t *conn,
                          size_t read, size_t written);

bool flashflow_lifts_conn_limit(const struct or_connection_t *conn);
bool flashflow_is_exempt(const struct tor_addr_t *addr);
bool flashflow_use_exemption(struct or_connection_t *conn);

bool flashflow_ingress_is_on(void);
void flashflow_ingress_limit(struct or_connection_t *conn, int is_new, int *rate, int *burst);
int flashflow_check_relay(const struct or_options_t *options, char **msg);

uint64_t flashflow_kist_room(const struct channel_t *chan);
bool flashflow_kist_waits(const struct channel_t *chan);
bool flashflow_kist_still_waits(const struct channel_t *chan);

/* For flashflow_config.c. */
void flashflow_options_changed(void);
int flashflow_start(const char *granted);
void flashflow_stop(void);
const struct smartlist_t *flashflow_get_metrics(void);

#endif /* !defined(TOR_FEATURE_FLASHFLOW_FLASHFLOW_H) */
