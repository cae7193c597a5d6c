/* What an instance costs an hour: data/prices.json, which has its date.  A region that the list lacks is estimated by its reference region. */
#ifndef AWS_PRICES_H
#define AWS_PRICES_H
/* US dollars; -1 = not known. */
double price_per_hour(const char *region, const char *instance);
/* The region whose price that is: `region`, or the reference region that stands in for it. */
const char *price_region(const char *region, const char *instance);
const char *price_date(void);           /* "" = no list was found */
/* The data directory beside the programs, or where they were installed; NULL = neither has it.  Q4SWEEP_DATA overrides. */
const char *data_directory(void);
#endif
