-- How well an order of the variants agrees with measured times: for the estimates and, beside them, for null models
-- that know nothing of time. A score is better when smaller. Statistics are computed within a group of equal
-- rank_within values and averaged over the groups: pooling different problems flatters any model.

-- Half the (max - min) interval of a measurement, in microseconds; 1 % in all where the file gives no spread.
CREATE OR REPLACE VIEW scored AS
WITH pairs AS (
    SELECT
        r.family, r.target, r."group", r.variant, r.measured_us,
        0.5 * coalesce(r.spread, 0.01) * r.measured_us AS noise_us,
        r.time_us, r.warp_instructions, r.occupancy, r.tier,
        s.time_us AS static_us
    FROM ranking r
    LEFT JOIN ranking s
        ON s.family = r.family AND s.target = r.target AND s.variant = r.variant AND s.tier = 'static'
        AND s.status = 'ok'
    WHERE r.status = 'ok' AND r.measured_us IS NOT NULL AND r.used
    -- times of two tiers do not mix: those of the cycle tier where it has taken all that the sampled tier has, else the
    -- sampled ones where there are any
    QUALIFY r.tier = CASE
        WHEN count(*) FILTER (r.tier = 'cycle') OVER (PARTITION BY r.family, r.target)
             > greatest(0, count(*) FILTER (r.tier = 'sampled') OVER (PARTITION BY r.family, r.target) - 1) THEN 'cycle'
        WHEN bool_or(r.tier = 'sampled') OVER (PARTITION BY r.family, r.target) THEN 'sampled'
        ELSE 'static'
    END
)
SELECT family, target, "group", variant, measured_us, noise_us, tier AS model, 0 AS model_order,
       time_us AS score, time_us AS model_us
FROM pairs
UNION ALL
SELECT family, target, "group", variant, measured_us, noise_us, 'static bound', 1, static_us, static_us
FROM pairs WHERE tier <> 'static' AND static_us IS NOT NULL
UNION ALL
SELECT family, target, "group", variant, measured_us, noise_us, 'warp instructions', 2, warp_instructions, NULL
FROM pairs WHERE warp_instructions IS NOT NULL
UNION ALL
SELECT family, target, "group", variant, measured_us, noise_us, 'occupancy', 3, -occupancy, NULL
FROM pairs WHERE occupancy IS NOT NULL;

-- Average ranks (ties share the mean of their places).
CREATE OR REPLACE VIEW ranked AS
SELECT
    *,
    rank() OVER (PARTITION BY family, target, "group", model ORDER BY score)
        + (count(*) OVER (PARTITION BY family, target, "group", model, score) - 1) / 2.0 AS score_rank,
    rank() OVER (PARTITION BY family, target, "group", model ORDER BY measured_us)
        + (count(*) OVER (PARTITION BY family, target, "group", model, measured_us) - 1) / 2.0 AS measured_rank,
    row_number() OVER (PARTITION BY family, target, "group", model ORDER BY score, variant) AS pick,
    min(measured_us) OVER (PARTITION BY family, target, "group", model) AS best_us
FROM scored;

CREATE OR REPLACE VIEW group_correlation AS
SELECT
    r.family,
    r.target,
    r."group",
    r.model,
    any_value(r.model_order) AS model_order,
    count(*) AS n,
    CASE
        WHEN count(DISTINCT r.measured_us) < 2 THEN NULL
        WHEN count(DISTINCT r.score) < 2 THEN 0.0
        ELSE corr(r.score_rank, r.measured_rank)
    END AS spearman,
    -- measured times whose intervals overlap are ties (farm/statistics.py)
    nullif(kendall_tau(list(r.score), list(r.measured_us), list(r.noise_us)), 'NaN'::DOUBLE) AS kendall,
    min(r.measured_us) FILTER (r.pick <= 1) / any_value(r.best_us) - 1 AS top1_loss,
    min(r.measured_us) FILTER (r.pick <= 5) / any_value(r.best_us) - 1 AS top5_loss,
    median(abs(r.model_us / r.measured_us - 1)) AS median_error,
    quantile_cont(abs(r.model_us / r.measured_us - 1), 0.9) AS p90_error,
    median(r.model_us / r.measured_us) AS median_ratio
FROM ranked r
GROUP BY r.family, r.target, r."group", r.model;

CREATE OR REPLACE VIEW correlation AS
SELECT
    family,
    target,
    model,
    sum(n)::INTEGER AS n,
    count(*)::INTEGER AS groups,
    avg(spearman) AS spearman,
    avg(kendall) AS kendall,
    avg(top1_loss) AS top1_loss,
    avg(top5_loss) AS top5_loss,
    avg(median_error) AS median_error,
    avg(p90_error) AS p90_error,
    avg(median_ratio) AS median_ratio
FROM group_correlation
GROUP BY family, target, model
ORDER BY family, target, any_value(model_order);

-- The mean over the run's families, each weighing the same.
CREATE OR REPLACE VIEW overall_correlation AS
SELECT
    'mean of ' || count(*) || ' families' AS family,
    target,
    CASE WHEN model IN ('cycle', 'sampled', 'static') THEN 'best tier' ELSE model END AS model,
    sum(n)::INTEGER AS n,
    sum(groups)::INTEGER AS groups,
    avg(spearman) AS spearman,
    avg(kendall) AS kendall,
    avg(top1_loss) AS top1_loss,
    avg(top5_loss) AS top5_loss,
    avg(median_error) AS median_error,
    avg(p90_error) AS p90_error,
    avg(median_ratio) AS median_ratio
FROM correlation
GROUP BY target, CASE WHEN model IN ('cycle', 'sampled', 'static') THEN 'best tier' ELSE model END
HAVING count(*) > 1
ORDER BY target, min(CASE model WHEN 'cycle' THEN 0 WHEN 'sampled' THEN 0 WHEN 'static' THEN 0 WHEN 'static bound' THEN 1
                     WHEN 'warp instructions' THEN 2 ELSE 3 END);
