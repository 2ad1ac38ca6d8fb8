-- One row a (family, variant, target) and tier, best first within its group: what `farm rank` shows.
-- `groups` holds the values of the rank_within parameters as text ('' when there are none).
CREATE OR REPLACE VIEW ranking AS
SELECT
    e.family,
    e.target,
    e.tier,
    g."group",
    CASE
        WHEN e.status = 'ok'
            THEN rank() OVER (PARTITION BY e.family, e.target, e.tier, g."group", e.status ORDER BY e.time_us)
    END AS place,
    e.variant,
    e.status,
    e.failure,
    e.message,
    e.time_us,
    e.bound,
    e.occupancy,
    e.ctas_per_sm,
    e.limiter,
    e.waves,
    e.warp_instructions,
    e.confidence,
    e.expected_error,
    e.simulation_seconds,
    v.grid_dim,
    v.block_dim,
    v.dynamic_shared_bytes,
    v.static_shared_bytes,
    v.registers,
    v.spill_store_bytes,
    v.spill_load_bytes,
    v.cubin_sha,
    m.time_us AS measured_us,
    m.spread,
    m.used
FROM estimates e
JOIN variants v USING (family, variant, target)
JOIN groups g USING (family, variant)
LEFT JOIN measurements m USING (family, variant, target);

-- Each variant by its best tier (cycle, else sampled, else static): variants that the funnel stopped are ranked among
-- themselves.
CREATE OR REPLACE VIEW best_ranking AS
SELECT * FROM ranking
QUALIFY row_number() OVER (PARTITION BY family, target, variant ORDER BY tier <> 'cycle', tier <> 'sampled') = 1;
