/**
 * @file flashflow_state.c
 * @brief What the FlashFlow target remembers of earlier measurements, in tor's state file.
 **/

#include "core/or/or.h"

#include "app/config/statefile.h"
#include "feature/flashflow/flashflow.h"
#include "feature/flashflow/flashflow_config.h"
#include "lib/conf/confdecl.h"
#include "lib/conf/conftypes.h"
#include "lib/encoding/confline.h"

#define CONF_CONTEXT STRUCT
#include "feature/flashflow/flashflow_state.inc"
#undef CONF_CONTEXT
typedef struct flashflow_state_t flashflow_state_t;

#define CONF_CONTEXT TABLE
#include "feature/flashflow/flashflow_state.inc"
#undef CONF_CONTEXT

#define FLASHFLOW_STATE_MAGIC 0x46465354

/** Our part of the state file; NULL where there is none, as in the unit tests. */
static flashflow_state_t *current_state;

/** Whether tor is still loading its state. */
static bool is_loading;

/** Takes the state that was loaded at the start. */
int
flashflow_set_state(void *arg)
{
  current_state = arg;
  char *granted = flashflow_join_values(current_state->FFGranted, "\n");
  /* Only says so in the log when that fails: a relay runs without measurements, too. */
  is_loading = true;
  (void) flashflow_start(granted);
  is_loading = false;
  tor_free(granted);
  return 0;
}

/** Forgets where it is. */
void
flashflow_forget_state(void)
{
  current_state = NULL;
}

/** Puts <b>granted</b>, a measurement on each line, into the state file: at once, or with tor's next
 * write of it when lines are only dropped at the start. Returns -1 when it could not be written. */
int
flashflow_save_granted(const char *granted)
{
  if (!current_state)
    return -1;
  smartlist_t *lines = smartlist_new();
  smartlist_split_string(lines, granted, "\n", SPLIT_IGNORE_BLANK, 0);
  config_free_lines(current_state->FFGranted);
  current_state->FFGranted = NULL;
  SMARTLIST_FOREACH_BEGIN(lines, char *, line) {
    config_line_append(&current_state->FFGranted, "FFGranted", line);
    tor_free(line);
  } SMARTLIST_FOREACH_END(line);
  smartlist_free(lines);
  /* tor takes its guards from the state after us: what is saved before that has none. */
  if (is_loading)
    return 0;
  or_state_mark_dirty(get_or_state(), 0);
  return or_state_save(approx_time());
}

const config_format_t flashflow_state_fmt = {
  .size = sizeof(flashflow_state_t),
  .magic = { "flashflow_state_t", FLASHFLOW_STATE_MAGIC,
             offsetof(flashflow_state_t, magic) },
  .vars = flashflow_state_t_vars,
};
