/**
 * @file flashflow_private.h
 * @brief What the files of the FlashFlow target share with each other only.
 **/

#ifndef TOR_FEATURE_FLASHFLOW_FLASHFLOW_PRIVATE_H
#define TOR_FEATURE_FLASHFLOW_FLASHFLOW_PRIVATE_H

#include "core/or/or.h"
#include "feature/flashflow/ff_relay_ext.h"
#include "ht.h"

/** A link that has brought a MEASUREMENT cell. Which part it has in a measurement, the library
 * knows. */
typedef struct flashflow_link_t {
  /** Its place among all links. */
  HT_ENTRY(flashflow_link_t) node;
  /** Its number; no other link has it, ever. */
  uint64_t id;
  /** Its connection. */
  or_connection_t *conn;
  /** The measurement circuit, as the library has it; NULL until there is one. Ours to free. */
  ff_circuit *circuit;
  /** The measurement circuit's id. */
  circid_t circ_id;
  /** Whose circuit it is, as the library counts measurers. */
  uint8_t measurer;
  /** The id of the circuit by which a coordinator probes the relay, or 0. */
  circid_t probe_id;
  /** Whether we do not read from it because too much is queued for it. */
  bool is_paused;
  /** Whether it has EVENT_PRIORITY_LAST. */
  bool is_last;
} flashflow_link_t;

/** The library's state; NULL when this relay does not take part. */
extern ff_target *flashflow_target;
/** Whether a measurement is granted or running. */
extern bool flashflow_is_measuring;
/** Whether this relay takes part in measurements, and so clients' bytes are counted. */
extern bool flashflow_is_allowed;

/** What the limit where clients enter makes of a link. */
#define FLASHFLOW_INGRESS_NONE 0
#define FLASHFLOW_INGRESS_LIMITED 1
#define FLASHFLOW_INGRESS_EXEMPT 2

uint64_t flashflow_now_micros(void);
void flashflow_drain_outputs(void);
void flashflow_update_exact_buckets(void);

/* flashflow_link.c */
flashflow_link_t *flashflow_link_by_id(uint64_t id);
flashflow_link_t *flashflow_link_of(or_connection_t *conn);
void flashflow_link_free(flashflow_link_t *link);
void flashflow_link_free_all(void);
ff_part flashflow_link_part(const flashflow_link_t *link);
bool flashflow_link_has_circuits(const flashflow_link_t *link);
void flashflow_link_open(flashflow_link_t *link, ff_circuit *circuit);
void flashflow_link_over(flashflow_link_t *link);
circuit_t *flashflow_link_circuit(const flashflow_link_t *link);

/* flashflow_bucket.c */
void flashflow_bucket_start(void);
size_t flashflow_bucket_read(void);
size_t flashflow_bucket_write(void);
void flashflow_bucket_take(size_t read, size_t written);

/* flashflow_echo.c */
void flashflow_echo_start(void);
void flashflow_echo_stop(void);
void flashflow_echo_opened(void);
void flashflow_echo_closed(void);
void flashflow_echo_over(void);
void flashflow_echo_resume(flashflow_link_t *link);
void flashflow_echo_handle(cell_t *cell, or_connection_t *conn);
void flashflow_echo_report(void);
void flashflow_echo_note_background(size_t read);
size_t flashflow_echo_room(const flashflow_link_t *link);

/* flashflow_ingress.c */
struct metrics_store_t;
void flashflow_ingress_forget(or_connection_t *conn);
void flashflow_ingress_note_bytes(const connection_t *conn, size_t read, size_t written);
void flashflow_ingress_add_metrics(struct metrics_store_t *store);
void flashflow_ingress_options_changed(void);
void flashflow_ingress_start(void);
void flashflow_ingress_stop(void);

/* flashflow_kist.c */
void flashflow_kist_about_to_close(or_connection_t *conn);
void flashflow_kist_stop(void);

/* flashflow_share.c */
const uint8_t *flashflow_address_bytes(const tor_addr_t *addr, uint32_t *ipv4, size_t *len);
void flashflow_free_metrics(void);

#endif /* !defined(TOR_FEATURE_FLASHFLOW_FLASHFLOW_PRIVATE_H) */
