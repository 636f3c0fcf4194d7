/**
 * @file flashflow_config.h
 * @brief Options and state of the FlashFlow target, as a subsystem of tor.
 **/

#ifndef TOR_FEATURE_FLASHFLOW_FLASHFLOW_CONFIG_H
#define TOR_FEATURE_FLASHFLOW_FLASHFLOW_CONFIG_H

#include "lib/cc/torint.h"
#include "feature/flashflow/ff_relay_ext.h"

extern const struct subsys_fns_t sys_flashflow;

/** More options than anybody needs: 64 coordinators on a line each, and the others. */
#define FLASHFLOW_MAX_OPTIONS 80

/** The options as the library takes them. */
typedef struct flashflow_option_list_t {
  ff_option option[FLASHFLOW_MAX_OPTIONS];
  size_t count;
  /** All values of the option that may be repeated, on one line; freed by
   * flashflow_option_list_clear(). */
  char *values;
  /** Numbers that are texts only here. */
  char rate[24], burst[24];
} flashflow_option_list_t;

/** More parameters than there are. */
#define FLASHFLOW_MAX_PARAMS 16

/** Parameters of a consensus as the library takes them. */
typedef struct flashflow_param_list_t {
  ff_param param[FLASHFLOW_MAX_PARAMS];
  size_t count;
} flashflow_param_list_t;

struct config_line_t;
struct networkstatus_t;

void flashflow_get_options(flashflow_option_list_t *list);
void flashflow_get_ingress_options(flashflow_option_list_t *list);
void flashflow_option_list_clear(flashflow_option_list_t *list);
void flashflow_get_params(const struct networkstatus_t *ns, bool is_ingress,
                          flashflow_param_list_t *list);
char *flashflow_join_values(const struct config_line_t *lines, const char *end);

extern const struct config_format_t flashflow_state_fmt;
int flashflow_set_state(void *arg);
int flashflow_save_granted(const char *granted);
void flashflow_forget_state(void);

#endif /* !defined(TOR_FEATURE_FLASHFLOW_FLASHFLOW_CONFIG_H) */
