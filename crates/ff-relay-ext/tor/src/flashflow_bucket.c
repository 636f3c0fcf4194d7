/**
 * @file flashflow_bucket.c
 * @brief What a measurement may use of the relay's bandwidth: no more than its rate.
 *
 * tor's token buckets save up to BandwidthBurst, by default a gigabyte. A relay that was idle could
 * be measured for a minute at many times the rate that it can keep. So measurement traffic has a bucket
 * of its own besides, with the same rate and little depth, and what tor's buckets had saved when the
 * measurement began does not count. All traffic empties it, as far as it may count in the estimate:
 * the estimate is the sum of both.
 **/

#include "core/or/or.h"

#include "app/config/config.h"
#include "feature/flashflow/flashflow_private.h"
#include "lib/evloop/token_bucket.h"
#include "lib/time/compat_time.h"

#include "app/config/or_options_st.h"

/** What may be saved, in milliseconds of the rate, besides what comes between two refills: tor wakes
 * links that wait for bandwidth once in TokenBucketRefillInterval, and it is late by some of it. */
#define SAVED_MSEC 100

/** What measurement traffic may move. */
static token_bucket_rw_t bucket;
/** Its rate in bytes per second, and its depth; 0 before the first measurement. */
static uint32_t bucket_rate, bucket_depth;

/** Brings the bucket up to date. */
static void
refill(void)
{
  const or_options_t *options = get_options();
  uint64_t rate = options->BandwidthRate;
  if (options->RelayBandwidthRate)
    rate = MIN(rate, options->RelayBandwidthRate);
  rate = MIN(rate, INT32_MAX);
  uint64_t msec = SAVED_MSEC + (uint64_t) options->TokenBucketRefillInterval;
  uint32_t depth = (uint32_t) MIN(MAX(rate * msec / 1000, 1), INT32_MAX);
  if (rate != bucket_rate || depth != bucket_depth) {
    bucket_rate = (uint32_t) rate;
    bucket_depth = depth;
    token_bucket_rw_adjust(&bucket, bucket_rate, depth);
  }
  (void) token_bucket_rw_refill(&bucket, monotime_coarse_get_stamp());
}

/** Gets ready for a measurement. */
void
flashflow_bucket_start(void)
{
  refill();
  token_bucket_rw_reset(&bucket, monotime_coarse_get_stamp());
}

/** How many bytes measurement traffic may read now. */
size_t
flashflow_bucket_read(void)
{
  refill();
  return token_bucket_rw_get_read(&bucket);
}

/** How many bytes measurement traffic may write now. */
size_t
flashflow_bucket_write(void)
{
  refill();
  return token_bucket_rw_get_write(&bucket);
}

/** Of <b>bytes</b>, how many leave a debt that is worked off within the bucket's depth. */
static ssize_t
bounded(size_t bytes, ssize_t level)
{
  return (ssize_t) MIN(bytes, (size_t) MAX(level + (ssize_t) bucket_depth, 0));
}

/** Takes what has been moved. */
void
flashflow_bucket_take(size_t read, size_t written)
{
  refill();
  (void) token_bucket_rw_dec(&bucket, bounded(read, bucket.read_bucket.bucket),
                             bounded(written, bucket.write_bucket.bucket));
}
