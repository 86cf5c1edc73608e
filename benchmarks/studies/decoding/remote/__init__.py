"""What runs in the environment of CTranslate2 and sacrebleu."""
