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
#include "lib/confmgt/var_type_def_st.h"
#include "lib/container/smartlist.h"
#include "lib/encoding/confline.h"

/** The values of lines that may be repeated. tor's LINELIST looks for its end with each line, and so
 * takes time by the square of their number. */
typedef smartlist_t *config_decl_FLASHFLOW_VALUES;
static const struct var_type_def_t FLASHFLOW_VALUES_type_defn;

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

/* ---- The type of FFGranted ------------------------------------------------------------------- */

/** Frees the values at <b>target</b>. */
static void
values_clear(void *target, const void *params)
{
  smartlist_t **values = target;
  (void) params;
  if (!*values)
    return;
  SMARTLIST_FOREACH(*values, char *, value, tor_free(value));
  smartlist_free(*values);
}

/** Adds a line's value to those at <b>target</b>. */
static int
values_kv_parse(void *target, const config_line_t *line, char **errmsg, const void *params)
{
  smartlist_t **values = target;
  (void) errmsg;
  (void) params;
  if (!*values)
    *values = smartlist_new();
  smartlist_add_strdup(*values, line->value);
  return 0;
}

/** Returns a line with <b>key</b> for each value. */
static config_line_t *
values_kv_encode(const char *key, const void *target, const void *params)
{
  const smartlist_t *values = *(smartlist_t *const *) target;
  config_line_t *lines = NULL;
  (void) params;
  if (!values)
    return NULL;
  /* From the last one, because a line is put in front of the others at once. */
  for (int i = smartlist_len(values) - 1; i >= 0; --i)
    config_line_prepend(&lines, key, smartlist_get(values, i));
  return lines;
}

/** Replaces the values at <b>target</b> by those at <b>source</b>. */
static int
values_copy(void *target, const void *source, const void *params)
{
  smartlist_t **values = target;
  const smartlist_t *others = *(smartlist_t *const *) source;
  values_clear(target, params);
  if (!others)
    return 0;
  *values = smartlist_new();
  SMARTLIST_FOREACH(others, const char *, value, smartlist_add_strdup(*values, value));
  return 0;
}

/** Says whether both have the same values. */
static bool
values_eq(const void *a, const void *b, const void *params)
{
  (void) params;
  return smartlist_strings_eq(*(smartlist_t *const *) a, *(smartlist_t *const *) b);
}

static const struct var_type_fns_t values_fns = {
  .kv_parse = values_kv_parse,
  .kv_encode = values_kv_encode,
  .clear = values_clear,
  .copy = values_copy,
  .eq = values_eq,
};

static const struct var_type_def_t FLASHFLOW_VALUES_type_defn = {
  .name = "FlashFlowValues",
  .fns = &values_fns,
  .flags = CFLG_NOREPLACE,
};

/* ---- What is kept ---------------------------------------------------------------------------- */

/** Whether tor is still loading its state. */
static bool is_loading;

/** Takes the state that was loaded at the start. */
int
flashflow_set_state(void *arg)
{
  current_state = arg;
  const smartlist_t *values = current_state->FFGranted;
  char *granted = values ? smartlist_join_strings(values, "\n", 0, NULL) : NULL;
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
  values_clear(&current_state->FFGranted, NULL);
  current_state->FFGranted = smartlist_new();
  smartlist_split_string(current_state->FFGranted, granted, "\n", SPLIT_IGNORE_BLANK, 0);
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
