"""What Penstock uses of Spark beyond its public API: all of it is in this package, and a test keeps it here.

The rest of Penstock sees two protocols: `PlanAnalysis` says what is in the plan of a frame, `SmallPlans` computes plans
over a few rows in the driver. Where a version of Spark moves something, one of them may have to be written anew; small
plans can be left out altogether (`spark.small_plans = "off"`).

    protocols        the two, and nothing else
    analysis         PlanAnalysis
    jvm              plans and expressions, taken apart and put together over py4j
    stand_in         empty frames that stand for inputs; found again in every plan
    carrying         columns of the log carried through a plan
    surgery          columns added to a plan, and what lies below its aggregation
    prepared         a view's plan, run again over other rows; SmallPlans
    physical         physical plans that are made once, and run `together` by one `task`
    canary           whether small plans give what Spark's scheduler gives
    rows             rows of Arrow as a frame
    process          starting the JVM
    context          what is asked of a running JVM: executors, time zone, files
"""
