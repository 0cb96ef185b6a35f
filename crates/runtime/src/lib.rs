//! What every operator needs: lease, recorder, conditions, metrics, health, CRDs, rights.
